"""The messages of the protocol, one module per API; import the module you need."""
