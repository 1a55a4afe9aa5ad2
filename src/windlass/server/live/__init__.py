"""What is known now. A thread follows the journal and makes each status and each patch once; streams send them."""
