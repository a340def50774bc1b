"""The runner ``rpc``: remote devices behind TVM's RPC, reached by a tracker or by address."""
