"""Parses untrusted XML: no entities, no external files, a tree of bounded size. Standard library only."""

from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

MAX_DEPTH = 200
MAX_ELEMENTS = 500_000


class XmlError(ValueError):
    """Raised if it is not XML, or XML that is refused."""


def parse_xml(data: bytes | str) -> Element:
    """Return the element tree, with namespaced names as `{uri}name`. Raises XmlError."""
    builder = TreeBuilder()
    parser = expat.ParserCreate(namespace_separator="}")
    parser.buffer_text = True
    depth = elements = 0

    def begin(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth, elements
        depth += 1
        elements += 1
        if depth > MAX_DEPTH or elements > MAX_ELEMENTS:
            raise XmlError(f"more than {MAX_DEPTH} nested elements, or {MAX_ELEMENTS} in all")
        builder.start(_name(name), {_name(key): value for key, value in attributes.items()})

    def end(name: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(_name(name))

    def refuse(*_: object) -> int:
        raise XmlError("it declares entities, which are not read")

    parser.StartElementHandler = begin
    parser.EndElementHandler = end
    parser.CharacterDataHandler = builder.data
    parser.EntityDeclHandler = refuse
    parser.UnparsedEntityDeclHandler = refuse
    parser.ExternalEntityRefHandler = refuse
    parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise XmlError(str(error)) from None
    return builder.close()


def strip_name(element: Element) -> str:
    """Return the tag name without its namespace."""
    return str(element.tag).rpartition("}")[2]


def _name(name: str) -> str:
    return "{" + name if "}" in name else name
