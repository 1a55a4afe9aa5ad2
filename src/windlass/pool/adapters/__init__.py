"""Adapters offer a pool as an asyncio facade, a concurrent.futures executor and a joblib backend."""
