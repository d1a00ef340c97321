"""Answers of the operator and objects of the API server, laid out for people: JSON values enter, Sections leave.

One layout serves the plain text of the HTTP pages and the tables of the command line. May not live here: what an
answer says, HTTP, colours.
"""
