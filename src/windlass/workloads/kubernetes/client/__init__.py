"""The API server's client: transport, typed objects, and reflectors that mirror lists in memory."""
