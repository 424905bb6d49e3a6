"""The users of a node and the views of them that a request asks for."""
