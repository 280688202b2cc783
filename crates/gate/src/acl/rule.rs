//! One rule: whom it is about, what it is about, and what it says.

use crate::Action;

/// A rule. Equal priorities are decided by [`Effect`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) principal: Name,
    pub(super) role: Name,
    pub(super) tenant: Name,
    pub(super) resource: Pattern,
    pub(super) operations: Operations,
    pub(super) effect: Effect,
    pub(super) priority: i64,
}

/// A name that has to be the caller's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Name {
    /// Whatever it is, and also none.
    Any,
    /// This one.
    Is(Box<str>),
}

/// The resources a rule is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    /// `*`
    All,
    /// `x.*`: what begins with `x.` and goes on; this is `x`.
    Below(Box<str>),
    /// The one of that name.
    Exact(Box<str>),
}

impl Pattern {
    /// What a pattern means; `None`: nothing.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if text == "*" {
            return Some(Self::All);
        }
        let (name, below) = match text.strip_suffix(".*") {
            Some(above) => (above, true),
            None => (text, false),
        };
        if name.is_empty() || name.contains('*') {
            return None;
        }
        Some(if below { Self::Below(name.into()) } else { Self::Exact(name.into()) })
    }
}

/// The actions a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operations {
    /// `ANY`: all but administration.
    AllButAdmin,
    /// One.
    One(Action),
}

impl Operations {
    /// What the word means. Unsubscribing has none: no rule is asked about it.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let named = [
            Action::Publish,
            Action::Subscribe,
            Action::Request,
            Action::Connector,
            Action::A2a,
            Action::Admin,
        ];
        match named.into_iter().find(|action| action.as_str() == text) {
            Some(action) => Some(Self::One(action)),
            None => (text == "ANY").then_some(Self::AllButAdmin),
        }
    }

    /// Whether an action is one of them.
    pub(super) fn has(self, action: Action) -> bool {
        match self {
            Self::AllButAdmin => action != Action::Admin,
            Self::One(only) => only == action,
        }
    }
}

/// What a rule says, in the order in which rules of one priority are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Effect {
    /// Nobody knows: the entry has mistakes.
    Malformed,
    /// No.
    Deny,
    /// Yes.
    Allow,
}
