//! Filters: which events a group wants, in the dialects of the CloudEvents Subscriptions API.
//!
//! `exact`, `prefix` and `suffix` compare attributes, case-sensitively, on their canonical text; `all`, `any` and
//! `not` combine filters. A missing attribute matches no comparison, so that `not` of one matches it.
//!
//! A filter is one object with one member, its dialect. What can never match is refused where it is made:
//! empty names and values, names that no attribute may have, dialects nobody knows.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Map, Value};
use thiserror::Error;

use crate::{cloudevents::is_attribute_name, event::Event};

/// How deep filters may be nested; matching is recursive.
const DEEPEST: usize = 32;
/// How many filters and comparisons there may be in all; every event is held against them.
const MOST_NODES: usize = 1_000;
/// How many bytes the names and values of the filters of a group may have together: each instance keeps them in memory, and
/// answers show them.
const MOST_BYTES: usize = 64 << 10;

/// Why JSON is not a filter.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FilterError {
    /// Not an object.
    #[error("a filter must be an object")]
    NotAnObject,
    /// Filters that are not in an array.
    #[error("filters must be an array")]
    NotAnArray,
    /// An object with no member or with several.
    #[error("a filter must have exactly one member, its dialect, not {members}")]
    NotOneDialect {
        /// How many members there are.
        members: usize,
    },
    /// A dialect that this build does not know.
    #[error("filter dialect {dialect:?} is not known; known are exact, prefix, suffix, all, any and not")]
    UnknownDialect {
        /// The dialect.
        dialect: String,
    },
    /// The argument of the dialect has the wrong type.
    #[error("the argument of {dialect} must be {expected}")]
    Argument {
        /// The dialect.
        dialect: &'static str,
        /// What it takes.
        expected: &'static str,
    },
    /// A map or an array with nothing in it.
    #[error("the argument of {dialect} must not be empty")]
    Empty {
        /// The dialect.
        dialect: &'static str,
    },
    /// A name that no attribute can have.
    #[error("{dialect} names {name:?}, which cannot be an attribute: only a-z and 0-9 may be in a name")]
    Name {
        /// The dialect.
        dialect: &'static str,
        /// The name.
        name: String,
    },
    /// A value that is no string, or an empty one.
    #[error("{dialect} must compare attribute `{name}` with a string that is not empty")]
    Value {
        /// The dialect.
        dialect: &'static str,
        /// The attribute.
        name: String,
    },
    /// Nested too deep.
    #[error("filters must not be nested deeper than {DEEPEST}")]
    TooDeep,
    /// Too many of them.
    #[error("there must not be more than {MOST_NODES} filters and comparisons")]
    TooMany,
    /// Too large together.
    #[error("the names and values of filters must not have more than {MOST_BYTES} bytes together")]
    TooLarge,
}

/// One filter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Filter {
    node: Node,
    /// Of how many filters and comparisons it is made.
    cost: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Node {
    Compare(Comparison, Vec<(String, String)>),
    All(Vec<Node>),
    Any(Vec<Node>),
    Not(Box<Node>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Comparison {
    Exact,
    Prefix,
    Suffix,
}

impl Comparison {
    const fn dialect(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Prefix => "prefix",
            Self::Suffix => "suffix",
        }
    }
}

impl Filter {
    /// The filter that the JSON describes.
    ///
    /// # Errors
    ///
    /// [`FilterError`] names the first rule that is broken.
    pub fn parse(json: &Value) -> Result<Self, FilterError> {
        // What was stored is read whatever its size: the bound was not always there.
        Parser { nodes: 0, bytes: 0, most_bytes: usize::MAX }.whole(json)
    }

    /// The filters of an array, which may be empty; the bounds on their number and their size are for all together.
    ///
    /// # Errors
    ///
    /// As [`Filter::parse`].
    pub fn parse_list(json: &Value) -> Result<Vec<Self>, FilterError> {
        let filters = json.as_array().ok_or(FilterError::NotAnArray)?;
        let mut parser = Parser { nodes: 0, bytes: 0, most_bytes: MOST_BYTES };
        filters.iter().map(|filter| parser.whole(filter)).collect()
    }

    /// Whether the event passes. Of several filters of a group, all must match.
    pub fn matches(&self, event: &Event) -> bool {
        self.node.matches(event)
    }

    /// How many filters and comparisons it holds an event against, at most.
    pub fn cost(&self) -> usize {
        self.cost
    }

    /// The JSON that [`Filter::parse`] reads as this filter.
    pub fn to_json(&self) -> Value {
        self.node.to_json()
    }
}

impl Node {
    fn matches(&self, event: &Event) -> bool {
        match self {
            Self::Compare(comparison, attributes) => attributes.iter().all(|(name, value)| {
                event.attribute(name).is_some_and(|text| match comparison {
                    Comparison::Exact => text == value,
                    Comparison::Prefix => text.starts_with(value),
                    Comparison::Suffix => text.ends_with(value),
                })
            }),
            Self::All(filters) => filters.iter().all(|filter| filter.matches(event)),
            Self::Any(filters) => filters.iter().any(|filter| filter.matches(event)),
            Self::Not(filter) => !filter.matches(event),
        }
    }

    fn to_json(&self) -> Value {
        let list = |filters: &[Self]| filters.iter().map(Self::to_json).collect::<Value>();
        let (dialect, argument) = match self {
            Self::Compare(comparison, attributes) => {
                let map = attributes.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str())));
                (comparison.dialect(), Value::Object(map.collect()))
            }
            Self::All(filters) => ("all", list(filters)),
            Self::Any(filters) => ("any", list(filters)),
            Self::Not(filter) => ("not", filter.to_json()),
        };
        Value::Object(Map::from_iter([(dialect.to_owned(), argument)]))
    }
}

impl Serialize for Filter {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_json().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Filter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&Value::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

/// Counts what it reads.
struct Parser {
    nodes: usize,
    bytes: usize,
    most_bytes: usize,
}

impl Parser {
    fn count(&mut self) -> Result<(), FilterError> {
        self.nodes += 1;
        if self.nodes > MOST_NODES { Err(FilterError::TooMany) } else { Ok(()) }
    }

    /// A filter that is in no other.
    fn whole(&mut self, json: &Value) -> Result<Filter, FilterError> {
        let before = self.nodes;
        let node = self.filter(json, 1)?;
        Ok(Filter { node, cost: self.nodes - before })
    }

    fn filter(&mut self, json: &Value, depth: usize) -> Result<Node, FilterError> {
        self.count()?;
        if depth > DEEPEST {
            return Err(FilterError::TooDeep);
        }
        let members = json.as_object().ok_or(FilterError::NotAnObject)?;
        let (Some((dialect, argument)), 1) = (members.iter().next(), members.len()) else {
            return Err(FilterError::NotOneDialect { members: members.len() });
        };
        match dialect.as_str() {
            "exact" => self.comparison(Comparison::Exact, argument),
            "prefix" => self.comparison(Comparison::Prefix, argument),
            "suffix" => self.comparison(Comparison::Suffix, argument),
            "all" => self.list("all", argument, depth).map(Node::All),
            "any" => self.list("any", argument, depth).map(Node::Any),
            "not" => Ok(Node::Not(Box::new(self.filter(argument, depth + 1)?))),
            _ => Err(FilterError::UnknownDialect { dialect: dialect.chars().take(64).collect() }),
        }
    }

    fn comparison(&mut self, comparison: Comparison, argument: &Value) -> Result<Node, FilterError> {
        let dialect = comparison.dialect();
        let expected = "an object of attribute names and strings";
        let map = argument.as_object().ok_or(FilterError::Argument { dialect, expected })?;
        if map.is_empty() {
            return Err(FilterError::Empty { dialect });
        }
        let mut attributes = Vec::with_capacity(map.len().min(MOST_NODES));
        for (name, value) in map {
            self.count()?;
            if !is_attribute_name(name) {
                return Err(FilterError::Name { dialect, name: name.chars().take(256).collect() });
            }
            let value = value.as_str().filter(|value| !value.is_empty());
            let value = value.ok_or_else(|| FilterError::Value { dialect, name: name.clone() })?;
            self.bytes += name.len() + value.len();
            if self.bytes > self.most_bytes {
                return Err(FilterError::TooLarge);
            }
            attributes.push((name.clone(), value.to_owned()));
        }
        Ok(Node::Compare(comparison, attributes))
    }

    fn list(
        &mut self,
        dialect: &'static str,
        argument: &Value,
        depth: usize,
    ) -> Result<Vec<Node>, FilterError> {
        let filters =
            argument.as_array().ok_or(FilterError::Argument { dialect, expected: "an array of filters" })?;
        if filters.is_empty() {
            return Err(FilterError::Empty { dialect });
        }
        filters.iter().map(|filter| self.filter(filter, depth + 1)).collect()
    }
}

#[cfg(test)]
mod tests;
