"""The use cases of the service, free of transport: a shape in, a shape out, errors of ours."""
