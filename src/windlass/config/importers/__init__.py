"""Importers convert configuration files of other autoscalers."""
