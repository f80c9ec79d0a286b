"""The demo `documents`: a folder of contracts, written by code, read and filled in."""
