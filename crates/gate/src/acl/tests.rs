use std::{fmt::Write as _, fs};

use mesh_frame::TenantId;
use proptest::{prelude::*, sample::select};

use super::*;
use crate::{CredentialKind, Principal};

fn identity(principal: Option<&str>, roles: &[&str], tenant: &str) -> Identity {
    Identity {
        tenant: TenantId::new(tenant).expect("legal"),
        principal: principal.map(Principal::new),
        roles: roles.iter().map(|role| (*role).to_owned()).collect(),
        credential: if principal.is_some() { CredentialKind::Token } else { CredentialKind::None },
        expires_at: None,
        entry: None,
    }
}

fn loaded(text: &str) -> Result<(tempfile::TempDir, AclFilter), LoadError> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("acl.toml");
    fs::write(&path, text).expect("written");
    AclFilter::load(&path).map(|filter| (folder, filter))
}

fn short(finding: &Finding) -> &'static str {
    match finding {
        Finding::Pass(()) => "pass",
        Finding::Deny(_) => "deny",
        Finding::Malformed(_) => "malformed",
        Finding::Broken { .. } => "broken",
    }
}

fn verdict(filter: &AclFilter, who: &Identity, action: Action, resource: &str) -> &'static str {
    short(&filter.judge(who, action, resource))
}

/// A field of an entry as it is written, with what it means.
#[derive(Clone, Debug)]
enum Field {
    Missing,
    Good(&'static str),
    /// Text that TOML takes and the rules do not.
    Bad(&'static str),
}

#[derive(Clone, Debug)]
struct Entry {
    principal: Field,
    role: Field,
    tenant: Field,
    resource: Field,
    action: Field,
    effect: Field,
    /// `None`: left out; `Err`: as it stands.
    priority: Option<Result<i64, &'static str>>,
    unknown: bool,
}

fn field(
    good: &'static [&'static str],
    bad: &'static [&'static str],
    missing: u32,
) -> impl Strategy<Value = Field> {
    prop_oneof![
        30 => select(good).prop_map(Field::Good),
        1 => select(bad).prop_map(Field::Bad),
        missing => Just(Field::Missing),
    ]
}

fn entry() -> impl Strategy<Value = Entry> {
    let subjects = (
        field(&["*", "ann", "bob"], &["5", "\"\"", "[\"ann\"]"], 10),
        field(&["*", "reader", "writer"], &["true", "\" \""], 30),
        field(&["*", "t1", "t2"], &["{}", "1.5"], 30),
    );
    let resource = field(
        &["*", "a", "b", "a.*", "a.b", "a.b.*", "a.b.c", "b.*", "a..*"],
        &["\"\"", "\".*\"", "\"a*\"", "\"*.a\"", "7"],
        1,
    );
    let action =
        field(&["PUBLISH", "SUBSCRIBE", "ADMIN", "ANY"], &["\"publish\"", "\"UNSUBSCRIBE\"", "3"], 1);
    let effect = field(&["ALLOW", "ALLOW", "DENY"], &["\"Allow\"", "false"], 1);
    let priority = prop_oneof![
        10 => Just(None),
        30 => (-2i64..3).prop_map(|priority| Some(Ok(priority))),
        1 => select(&["\"1\"", "1.0", "99999999999999999999"][..]).prop_map(|bad| Some(Err(bad))),
    ];
    (subjects, resource, action, effect, priority, prop::bool::weighted(0.02)).prop_map(
        |((principal, role, tenant), resource, action, effect, priority, unknown)| Entry {
            principal,
            role,
            tenant,
            resource,
            action,
            effect,
            priority,
            unknown,
        },
    )
}

impl Entry {
    fn fields(&self) -> [(&'static str, &Field); 6] {
        [
            ("principal", &self.principal),
            ("role", &self.role),
            ("tenant", &self.tenant),
            ("resource", &self.resource),
            ("action", &self.action),
            ("effect", &self.effect),
        ]
    }

    fn write(&self, text: &mut String) {
        text.push_str("[[rule]]\n");
        for (name, field) in self.fields() {
            match field {
                Field::Missing => Ok(()),
                Field::Good(word) => writeln!(text, "{name} = \"{word}\""),
                Field::Bad(written) => writeln!(text, "{name} = {written}"),
            }
            .expect("a string takes it");
        }
        match &self.priority {
            None => Ok(()),
            Some(Ok(priority)) => writeln!(text, "priority = {priority}"),
            Some(Err(written)) => writeln!(text, "priority = {written}"),
        }
        .expect("a string takes it");
        if self.unknown {
            text.push_str("efect = \"DENY\"\n");
        }
    }

    fn is_malformed(&self) -> bool {
        let subject = [&self.principal, &self.role, &self.tenant];
        self.unknown
            || matches!(self.priority, Some(Err(_)))
            || self.fields().iter().any(|(_, field)| matches!(field, Field::Bad(_)))
            || [&self.resource, &self.action, &self.effect]
                .iter()
                .any(|field| matches!(field, Field::Missing))
            || subject.iter().all(|field| matches!(field, Field::Missing))
    }

    /// Neither whom nor what it governs can be read.
    fn is_hopeless(&self) -> bool {
        [&self.principal, &self.role, &self.tenant, &self.resource]
            .iter()
            .all(|field| !matches!(field, Field::Good(_)))
    }

    fn priority(&self) -> i64 {
        match &self.priority {
            None => 0,
            Some(Ok(priority)) => *priority,
            Some(Err(_)) => i64::MAX,
        }
    }

    fn governs(&self, who: &Identity, action: Action, resource: &str) -> bool {
        let name = |field: &Field, has: &dyn Fn(&str) -> bool| match field {
            Field::Good("*") | Field::Missing | Field::Bad(_) => true,
            Field::Good(wanted) => has(wanted),
        };
        let about = match self.resource {
            Field::Good("*") | Field::Missing | Field::Bad(_) => true,
            Field::Good(pattern) => match pattern.strip_suffix('*') {
                Some(above) => resource.starts_with(above) && resource.len() > above.len(),
                None => resource == pattern,
            },
        };
        let acts = match self.action {
            Field::Good("ANY") | Field::Missing | Field::Bad(_) => action != Action::Admin,
            Field::Good(word) => action.as_str() == word,
        };
        about
            && acts
            && name(&self.principal, &|wanted| who.principal.as_ref().is_some_and(|p| p.as_str() == wanted))
            && name(&self.role, &|wanted| who.roles.iter().any(|role| role == wanted))
            && name(&self.tenant, &|wanted| who.tenant.as_str() == wanted)
    }
}

/// The decision text, word for word: of those that govern, those of the highest priority; there one that is
/// malformed, else one that denies, else one that allows; none: denied.
fn by_the_text(entries: &[Entry], who: &Identity, action: Action, resource: &str) -> &'static str {
    let governing: Vec<&Entry> =
        entries.iter().filter(|entry| entry.governs(who, action, resource)).collect();
    let Some(highest) = governing.iter().map(|entry| entry.priority()).max() else { return "deny" };
    let top: Vec<&&Entry> = governing.iter().filter(|entry| entry.priority() == highest).collect();
    if top.iter().any(|entry| entry.is_malformed()) {
        "malformed"
    } else if top.iter().any(|entry| matches!(entry.effect, Field::Good("DENY"))) {
        "deny"
    } else {
        "pass"
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    // proves: SG-4
    #[test]
    fn compiled_rules_decide_as_the_text_says(entries in prop::collection::vec(entry(), 0..14)) {
        let mut text = String::new();
        entries.iter().for_each(|entry| entry.write(&mut text));
        let loaded = loaded(&text);
        if entries.iter().any(Entry::is_hopeless) {
            prop_assert!(matches!(loaded, Err(LoadError::Unusable { .. })), "{text}");
            return Ok(());
        }
        let (_folder, filter) = loaded.expect("a file that is TOML");
        let malformed = entries.iter().filter(|entry| entry.is_malformed()).count();
        prop_assert_eq!(filter.count(), RuleCount { all: entries.len(), malformed }, "{}", text);
        let callers = [
            identity(None, &[], "t1"),
            identity(Some("ann"), &["reader"], "t1"),
            identity(Some("bob"), &["writer", "reader", "other"], "t2"),
            identity(Some("eve"), &[], "t3"),
        ];
        for who in &callers {
            for action in [Action::Publish, Action::Subscribe, Action::Request, Action::Admin] {
                for resource in ["a", "b", "a.b", "a.b.c", "a.b.c.d", "a.", "a..", "a..b", "b.x", "c", "ab", ""] {
                    let expected = by_the_text(&entries, who, action, resource);
                    let came = verdict(&filter, who, action, resource);
                    prop_assert_eq!(came, expected, "{:?} {} {:?}\n{}", who, action.as_str(), resource, &text);
                }
            }
        }
    }
}

#[test]
fn one_broken_entry_denies_what_it_concerns_and_nothing_else() {
    // covers: U111  proves: SG-4
    let text = "\
[[rule]]
tenant = \"t1\"
resource = \"a.*\"
action = \"ANY\"
effect = \"ALLOW\"

[[rule]]
tenant = \"t1\"
resource = \"a.x\"
action = \"FLY\"
efect = \"ALLOW\"
";
    let (_folder, filter) = loaded(text).expect("TOML");
    let who = identity(Some("ann"), &[], "t1");
    assert_eq!(verdict(&filter, &who, Action::Publish, "a.y"), "pass");
    assert_eq!(verdict(&filter, &who, Action::Publish, "a.x"), "malformed");
    assert_eq!(verdict(&filter, &who, Action::Subscribe, "a.x"), "malformed");
    assert_eq!(verdict(&filter, &identity(Some("eve"), &[], "t2"), Action::Publish, "a.x"), "deny");
    assert_eq!(filter.count(), RuleCount { all: 2, malformed: 1 });
    let (_, mistakes) = file::read(Path::new("acl.toml"), text).expect("TOML");
    let told: Vec<_> = mistakes.told.iter().map(|(line, what)| (*line, what.as_str())).collect();
    let expected = [
        (11, "`efect` is not known here"),
        (10, "`action` is \"FLY\", which is not an action or ANY"),
        (7, "`effect` is missing"),
    ];
    assert_eq!((told.as_slice(), mistakes.more), (expected.as_slice(), 0));
}

#[test]
fn what_is_refused_as_a_whole_names_the_line() {
    let good = "[[rule]]\ntenant = \"*\"\nresource = \"*\"\naction = \"ANY\"\neffect = \"ALLOW\"\n";
    let cases = [
        ("rubbish", "rule = \n", ":6: it is not TOML"),
        ("another table", "[[rules]]\n", ":6: `rules` is not known here"),
        ("neither whom nor what", "[[rule]]\nprincipal = 5\nresource = 7\n", ":6: neither whom nor what"),
        ("nothing", "[[rule]]\n", ":6: neither whom nor what"),
        ("a member twice", "[[rule]]\nrole = \"a\"\nrole = \"b\"\n", ":8: it is not TOML"),
    ];
    for (name, wrong, message) in cases {
        let error = loaded(&format!("{good}{wrong}")).expect_err(name).to_string();
        assert!(error.contains(message), "{name}: {error}");
    }
    for (name, text) in [("a table", "[rule]\n"), ("a value", "rule = 5"), ("no tables", "rule = [1]")] {
        let error = loaded(text).expect_err(name).to_string();
        assert!(error.contains(":1: write [[rule]]"), "{name}: {error}");
    }
}

#[test]
fn a_reload_that_cannot_be_used_leaves_the_rules_and_their_number() {
    // covers: U111
    let rule = |effect: &str| {
        format!(
            "[[rule]]\nprincipal = \"*\"\nresource = \"a\"\naction = \"PUBLISH\"\neffect = \"{effect}\"\n"
        )
    };
    let (folder, filter) = loaded(&rule("ALLOW")).expect("TOML");
    let path = folder.path().join("acl.toml");
    let anonymous = identity(None, &[], "default");
    let before = filter.revision();
    assert_eq!(verdict(&filter, &anonymous, Action::Publish, "a"), "pass");
    assert_eq!(filter.reload().expect("the same"), Reload::Unchanged);

    fs::write(&path, "this is = = not TOML").expect("written");
    assert!(matches!(filter.reload(), Err(LoadError::Unusable { .. })));
    assert_eq!((verdict(&filter, &anonymous, Action::Publish, "a"), filter.revision()), ("pass", before));
    assert_eq!(filter.reload().expect("told once"), Reload::Unchanged);

    fs::write(&path, rule("DENY")).expect("written");
    assert_eq!(filter.reload().expect("TOML"), Reload::Changed);
    assert_eq!(verdict(&filter, &anonymous, Action::Publish, "a"), "deny");
    assert!(filter.revision() > before);
    fs::remove_file(&path).expect("removed");
    assert!(matches!(filter.reload(), Err(LoadError::Unreadable { .. })));
    assert_eq!(verdict(&filter, &anonymous, Action::Publish, "a"), "deny");
}
