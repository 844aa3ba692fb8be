"""Each operation as somebody may do it: what every protocol calls once it has read a request."""
