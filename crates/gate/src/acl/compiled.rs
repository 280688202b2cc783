//! Rules in the form that decisions are made by.
//!
//! A rule stands in one place: under the resource it names, there under the names it wants the caller to have. Rules
//! are numbered in the order in which they count, so the smallest number that matches decides. A decision looks up
//! the caller's names, each alone and together, where there are rules of that shape; it compares no rule that is
//! about another caller.

use std::collections::HashMap;

use super::rule::{Effect, Name, Operations, Pattern, Rule};
use crate::{Action, Identity, Principal};

/// A name that some rule has, as a number; 0 is none.
type Symbol = u32;
/// Principal, role and tenant that a rule wants; 0: any.
type Wanted = [Symbol; 3];
/// A rule's place in the order of all.
type Rank = u32;

/// How many rules a filter has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleCount {
    /// All of them.
    pub all: usize,
    /// Those that cannot be read as they stand.
    pub malformed: usize,
}

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

/// What is left of a rule that was found by its names.
#[derive(Debug)]
struct Ranked {
    operations: Operations,
    effect: Effect,
}

#[derive(Debug, Default)]
struct Node {
    labels: HashMap<Box<str>, Node>,
    place: Place,
}

/// The rules of one resource pattern.
#[derive(Debug, Default)]
struct Place {
    /// Which of the three names the rules here want: a bit for each shape.
    shapes: u8,
    /// In their order.
    lists: HashMap<Wanted, Vec<Rank>>,
}

/// A caller as far as rules know it.
struct Known {
    principal: Symbol,
    roles: Vec<Symbol>,
    tenant: Symbol,
}

impl Compiled {
    pub(super) fn new(mut rules: Vec<Rule>) -> Self {
        rules.sort_by(|one, other| {
            other.priority.cmp(&one.priority).then_with(|| one.effect.cmp(&other.effect))
        });
        let mut compiled = Self::default();
        for rule in rules {
            let rank = Rank::try_from(compiled.rules.len()).expect("a file has less than 2^32 rules");
            let wanted = [rule.principal, rule.role, rule.tenant].map(|name| compiled.symbol(name));
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
            place.shapes |= 1 << shape(wanted);
            place.lists.entry(wanted).or_default().push(rank);
            compiled.rules.push(Ranked { operations: rule.operations, effect: rule.effect });
        }
        compiled
    }

    fn symbol(&mut self, name: Name) -> Symbol {
        let Name::Is(name) = name else { return 0 };
        let next = Symbol::try_from(self.symbols.len() + 1).expect("a file has less than 2^32 names");
        *self.symbols.entry(name).or_insert(next)
    }

    pub(super) fn count(&self) -> RuleCount {
        let malformed = self.rules.iter().filter(|rule| rule.effect == Effect::Malformed).count();
        RuleCount { all: self.rules.len(), malformed }
    }

    /// What the rule that decides says; `None`: there is none.
    pub(super) fn decide(&self, identity: &Identity, action: Action, resource: &str) -> Option<Effect> {
        let symbol = |name: &str| self.symbols.get(name).copied();
        let known = Known {
            principal: identity.principal.as_ref().map(Principal::as_str).and_then(symbol).unwrap_or(0),
            roles: identity.roles.iter().filter_map(|role| symbol(role)).collect(),
            tenant: symbol(identity.tenant.as_str()).unwrap_or(0),
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
        for has_principal in [false, true] {
            for has_tenant in [false, true] {
                let principal = if has_principal { known.principal } else { 0 };
                let tenant = if has_tenant { known.tenant } else { 0 };
                if (has_principal && principal == 0) || (has_tenant && tenant == 0) {
                    continue;
                }
                self.first_of(place, [principal, 0, tenant], action, first);
                if place.has([principal, 1, tenant]) {
                    for role in &known.roles {
                        self.first_of(place, [principal, *role, tenant], action, first);
                    }
                }
            }
        }
    }

    fn first_of(&self, place: &Place, wanted: Wanted, action: Action, first: &mut Rank) {
        if !place.has(wanted) {
            return;
        }
        let Some(list) = place.lists.get(&wanted) else { return };
        let mut before = list.iter().copied().take_while(|rank| *rank < *first);
        let found = before.find(|rank| self.rules[*rank as usize].operations.has(action));
        *first = found.unwrap_or(*first);
    }
}

impl Place {
    /// Whether some rule here wants names where this has some.
    fn has(&self, wanted: Wanted) -> bool {
        self.shapes & (1 << shape(wanted)) != 0
    }
}

fn shape(wanted: Wanted) -> u8 {
    wanted.iter().fold(0, |shape, symbol| shape << 1 | u8::from(*symbol != 0))
}
