"""Made by tools/proto.py from the .proto file; never written by hand."""
