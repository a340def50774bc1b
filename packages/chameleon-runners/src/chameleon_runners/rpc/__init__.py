"""The runner ``rpc``: boards and GPU servers behind TVM's RPC, through a tracker or by address."""
