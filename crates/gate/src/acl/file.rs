//! The rules' file: entries to rules, mistakes to denials that govern at least what the entry may have meant.

use std::path::Path;

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::rule::{Effect, Name, Operations, Pattern, Rule};
use crate::{
    filter::LoadError,
    toml_text::{TomlText, integer},
};

/// How many mistakes of one file are told one by one.
const TOLD: usize = 100;

/// What is wrong in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Mistakes {
    /// Line and mistake, the first [`TOLD`].
    pub(super) told: Vec<(usize, String)>,
    pub(super) more: usize,
}

/// The rules of a file, and what is wrong with those that are malformed.
pub(super) fn read(path: &Path, text: &str) -> Result<(Vec<Rule>, Mistakes), LoadError> {
    let text = TomlText::new(path, text);
    let document = text.parse()?;
    let mut mistakes = Mistakes::default();
    let rules = text.entries(&document, "rule")?.into_iter().map(|(at, entry)| {
        let mut reading = Reading { text, at, entry, mistakes: Vec::new() };
        let rule = reading.rule()?;
        for (at, what) in reading.mistakes {
            if mistakes.told.len() < TOLD {
                mistakes.told.push((text.line(at), what));
            } else {
                mistakes.more += 1;
            }
        }
        Ok(rule)
    });
    let rules: Result<Vec<Rule>, LoadError> = rules.collect();
    Ok((rules?, mistakes))
}

/// Tells the operator.
pub(super) fn warn(path: &Path, mistakes: &Mistakes) {
    for (line, what) in &mistakes.told {
        tracing::warn!("{}:{line}: {what}; what this rule may govern is denied", path.display());
    }
    if mistakes.more > 0 {
        tracing::warn!("{}: {} more mistakes like these", path.display(), mistakes.more);
    }
}

struct Reading<'a> {
    text: TomlText<'a>,
    at: usize,
    entry: &'a DeTable<'a>,
    /// Where, and what.
    mistakes: Vec<(usize, String)>,
}

impl<'a> Reading<'a> {
    fn rule(&mut self) -> Result<Rule, LoadError> {
        const MEMBERS: [&str; 7] =
            ["principal", "role", "tenant", "resource", "action", "effect", "priority"];
        let unknown = self.entry.keys().filter(|key| !MEMBERS.contains(&&**key.get_ref()));
        let mut unknown: Vec<_> = unknown.map(|key| (key.span().start, key.get_ref())).collect();
        unknown.sort_unstable();
        for (at, name) in unknown {
            self.mistake(at, format!("`{name}` is not known here"));
        }

        let (principal, role, tenant) = (self.name("principal"), self.name("role"), self.name("tenant"));
        if [&principal, &role, &tenant].iter().all(|name| matches!(name, Given::Not)) {
            self.mistake(self.at, "`principal`, `role` or `tenant` is missing".to_owned());
        }
        let resource = self.word("resource", "a name, `x.*` or `*`", Pattern::parse);
        let operations = self.word("action", "an action or ANY", Operations::parse);
        let effect = self.word("effect", "ALLOW or DENY", |word| match word {
            "ALLOW" => Some(Effect::Allow),
            "DENY" => Some(Effect::Deny),
            _ => None,
        });
        let priority = self.priority();

        let says_who = [&principal, &role, &tenant].iter().any(|name| matches!(name, Given::As(_)));
        if resource.is_none() && !says_who {
            let problem = "neither whom nor what this rule is about can be read".to_owned();
            return Err(self.text.unusable(self.at, problem));
        }
        let is_malformed = !self.mistakes.is_empty();
        Ok(Rule {
            principal: principal.or_any(),
            role: role.or_any(),
            tenant: tenant.or_any(),
            resource: resource.unwrap_or(Pattern::All),
            operations: operations.unwrap_or(Operations::AllButAdmin),
            effect: effect.filter(|_| !is_malformed).unwrap_or(Effect::Malformed),
            priority,
        })
    }

    fn name(&mut self, member: &str) -> Given {
        let Some(value) = self.entry.get(member) else { return Given::Not };
        match value.get_ref().as_str() {
            Some("*") => Given::As(Name::Any),
            Some(name) if !name.trim().is_empty() => Given::As(Name::Is(name.into())),
            _ => {
                self.bad(member, value, "a name or `*`");
                Given::Unreadable
            }
        }
    }

    fn word<T>(&mut self, member: &str, wanted: &str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        let Some(value) = self.entry.get(member) else {
            self.mistake(self.at, format!("`{member}` is missing"));
            return None;
        };
        let read = value.get_ref().as_str().and_then(parse);
        if read.is_none() {
            self.bad(member, value, wanted);
        }
        read
    }

    /// 0 where there is none; one that cannot be read counts as the highest.
    fn priority(&mut self) -> i64 {
        let Some(value) = self.entry.get("priority") else { return 0 };
        integer(value.get_ref()).unwrap_or_else(|| {
            self.bad("priority", value, "an integer");
            i64::MAX
        })
    }

    fn bad(&mut self, member: &str, value: &Spanned<DeValue<'_>>, wanted: &str) {
        let what = format!("`{member}` is {}, which is not {wanted}", self.text.shown(value));
        self.mistake(value.span().start, what);
    }

    fn mistake(&mut self, at: usize, what: String) {
        self.mistakes.push((at, what));
    }
}

/// A name in an entry.
enum Given {
    Not,
    As(Name),
    Unreadable,
}

impl Given {
    fn or_any(self) -> Name {
        match self {
            Self::As(name) => name,
            Self::Not | Self::Unreadable => Name::Any,
        }
    }
}
