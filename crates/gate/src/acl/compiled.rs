//! Rules in the form that decisions are made by.
//!
//! A rule stands in one place: under the resource it names, there under the name it wants the caller to have.
//! Rules are numbered in the order in which they count, so the smallest number that matches decides, and nothing
//! behind it is looked at.

use std::collections::HashMap;

use super::{
    RuleCount,
    rule::{Effect, Name, Operations, Pattern, Rule},
};
use crate::{Action, Identity, Principal};

/// A name that some rule has, as a number.
type Symbol = u32;
/// A rule's place in the order of all.
type Rank = u32;

/// The rules.
#[derive(Debug, Default)]
pub(super) struct Compiled {
    symbols: HashMap<Box<str>, Symbol>,
    rules: Vec<Ranked>,
    exact: HashMap<Box<str>, Place>,
    /// By the labels of names between dots; what stands here is about everything below.
    below: Node,
    all: Place,
}

/// A rule without its resource; a name that is not wanted is `None`.
#[derive(Debug)]
struct Ranked {
    principal: Option<Symbol>,
    role: Option<Symbol>,
    tenant: Option<Symbol>,
    operations: Operations,
    effect: Effect,
}

#[derive(Debug, Default)]
struct Node {
    labels: HashMap<Box<str>, Node>,
    place: Place,
}

/// The rules of one resource pattern, each under the most telling name that it wants, in their order.
#[derive(Debug, Default)]
struct Place {
    by_principal: HashMap<Symbol, Vec<Rank>>,
    by_role: HashMap<Symbol, Vec<Rank>>,
    by_tenant: HashMap<Symbol, Vec<Rank>>,
    of_everybody: Vec<Rank>,
}

/// A caller as far as rules know it.
struct Known {
    principal: Option<Symbol>,
    roles: Vec<Symbol>,
    tenant: Option<Symbol>,
}

impl Compiled {
    pub(super) fn new(mut rules: Vec<Rule>) -> Self {
        rules.sort_by(|one, other| {
            other.priority.cmp(&one.priority).then_with(|| one.effect.cmp(&other.effect))
        });
        let mut compiled = Self::default();
        for rule in rules {
            let rank = Rank::try_from(compiled.rules.len()).expect("a file has less than 2^32 rules");
            let ranked = Ranked {
                principal: compiled.symbol(rule.principal),
                role: compiled.symbol(rule.role),
                tenant: compiled.symbol(rule.tenant),
                operations: rule.operations,
                effect: rule.effect,
            };
            let place = match rule.resource {
                Pattern::All => &mut compiled.all,
                Pattern::Exact(name) => compiled.exact.entry(name).or_default(),
                Pattern::Below(name) => {
                    let root = &mut compiled.below;
                    let node = name
                        .split('.')
                        .fold(root, |node, label| node.labels.entry(label.into()).or_default());
                    &mut node.place
                }
            };
            place.list_for(&ranked).push(rank);
            compiled.rules.push(ranked);
        }
        compiled
    }

    fn symbol(&mut self, name: Name) -> Option<Symbol> {
        let Name::Is(name) = name else { return None };
        let next = Symbol::try_from(self.symbols.len()).expect("a file has less than 2^32 names");
        Some(*self.symbols.entry(name).or_insert(next))
    }

    pub(super) fn count(&self) -> RuleCount {
        let malformed = self.rules.iter().filter(|rule| rule.effect == Effect::Malformed).count();
        RuleCount { all: self.rules.len(), malformed }
    }

    /// What the rule that decides says; `None`: there is none.
    pub(super) fn decide(&self, identity: &Identity, action: Action, resource: &str) -> Option<Effect> {
        let symbol = |name: &str| self.symbols.get(name).copied();
        let known = Known {
            principal: identity.principal.as_ref().map(Principal::as_str).and_then(symbol),
            roles: identity.roles.iter().filter_map(|role| symbol(role)).collect(),
            tenant: symbol(identity.tenant.as_str()),
        };
        let mut first = Rank::MAX;
        let mut ask = |place: &Place| self.first_in(place, &known, action, &mut first);
        ask(&self.all);
        if let Some(place) = self.exact.get(resource) {
            ask(place);
        }
        let (mut node, mut rest) = (&self.below, resource);
        while let Some((label, after)) = rest.split_once('.') {
            let Some(next) = node.labels.get(label) else { break };
            if !after.is_empty() {
                ask(&next.place);
            }
            (node, rest) = (next, after);
        }
        self.rules.get(first as usize).map(|rule| rule.effect)
    }

    /// Makes `first` the first rule of a place that matches, if that comes before it.
    fn first_in(&self, place: &Place, known: &Known, action: Action, first: &mut Rank) {
        let of = |lists: &HashMap<Symbol, Vec<Rank>>, symbol: Symbol, first: &mut Rank| {
            if let Some(list) = lists.get(&symbol) {
                self.first_of(list, known, action, first);
            }
        };
        self.first_of(&place.of_everybody, known, action, first);
        if let Some(principal) = known.principal {
            of(&place.by_principal, principal, first);
        }
        for role in &known.roles {
            of(&place.by_role, *role, first);
        }
        if let Some(tenant) = known.tenant {
            of(&place.by_tenant, tenant, first);
        }
    }

    fn first_of(&self, list: &[Rank], known: &Known, action: Action, first: &mut Rank) {
        let before = list.iter().copied().take_while(|rank| *rank < *first);
        let found = before.filter(|rank| self.rules[*rank as usize].matches(known, action)).next();
        *first = found.unwrap_or(*first);
    }
}

impl Ranked {
    fn matches(&self, known: &Known, action: Action) -> bool {
        self.operations.has(action)
            && self.principal.is_none_or(|wanted| known.principal == Some(wanted))
            && self.tenant.is_none_or(|wanted| known.tenant == Some(wanted))
            && self.role.is_none_or(|wanted| known.roles.contains(&wanted))
    }
}

impl Place {
    fn list_for(&mut self, rule: &Ranked) -> &mut Vec<Rank> {
        match (rule.principal, rule.role, rule.tenant) {
            (Some(principal), _, _) => self.by_principal.entry(principal).or_default(),
            (None, Some(role), _) => self.by_role.entry(role).or_default(),
            (None, None, Some(tenant)) => self.by_tenant.entry(tenant).or_default(),
            (None, None, None) => &mut self.of_everybody,
        }
    }
}
