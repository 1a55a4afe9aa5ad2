"""This package holds the current status. A thread follows the journal and makes each status and each patch once;
streams send them."""
