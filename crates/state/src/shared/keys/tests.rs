//! Keys round-trip for every legal name and nothing else is read as one.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn group_named(tenant: &str, topic: &str, kind: GroupKind, name: &str) -> GroupId {
    GroupId {
        tenant: TenantId::new(tenant).expect("a legal tenant"),
        topic: TopicName::new(topic).expect("a legal topic"),
        kind,
        name: GroupName::new(name).expect("a legal group"),
    }
}

#[test]
fn keys_look_as_documented() {
    let id = group_named("acme", "orders", GroupKind::LoadBalance, "bill ing");
    let client = ClientId::new("a/b").expect("legal");
    assert_eq!(group(&id), "/em/groups/acme/orders/lb/bill%20ing");
    assert_eq!(subscription(&id, &client), "/em/subs/acme/orders/lb/bill%20ing/a%2Fb");
    let mut letter = DeadLetterId {
        group: id,
        instance: None,
        incarnation: Incarnation(7),
        partition: PartitionId(3),
        offset: Offset(12),
    };
    assert_eq!(
        dead_letter(&letter),
        "/em/dlq/acme/orders/lb/bill%20ing/00000000000000000007-0000000003-00000000000000000012"
    );
    letter.instance = InstanceId::new("host-1").ok();
    assert_eq!(
        dead_letter(&letter),
        "/em/dlq/acme/orders/lb/bill%20ing/host-1/00000000000000000007-0000000003-00000000000000000012"
    );
    assert_eq!(single(TASKS, "t:1"), "/em/tasks/t%3A1");
}

#[test]
fn awkward_names_round_trip_and_stay_apart() {
    // covers: U94
    let long = "n".repeat(200);
    let names =
        ["a/b", "a#b", "a b", "ü", &long, "a%2Fb", "a%b", "%", "a", "ab", "A", ".", "..", "a\u{2028}"];
    let mut keys = BTreeSet::new();
    for name in names {
        assert_eq!(decode_part(&encode_part(name)).as_deref(), Some(name));
        let client = ClientId::new(name).expect("legal");
        let id = group_named(name, "a", GroupKind::Broadcast, name);
        let key = subscription(&id, &client);
        assert_eq!(read_subscription(&key), Some((id.clone(), client)));
        assert_eq!(read_group(&group(&id)), Some(id));
        keys.insert(key);
    }
    assert_eq!(keys.len(), names.len());
}

#[test]
fn the_prefix_of_a_group_or_topic_never_covers_a_longer_name() {
    // covers: U94
    let client = ClientId::new("c").expect("legal");
    let a = group_named("t", "a", GroupKind::LoadBalance, "g");
    for other in [
        group_named("t", "ab", GroupKind::LoadBalance, "g"),
        group_named("t", "a", GroupKind::LoadBalance, "g2"),
        group_named("t", "a", GroupKind::LoadBalance, "g/c"),
        group_named("t", "a", GroupKind::Broadcast, "g"),
    ] {
        assert!(!subscription(&other, &client).starts_with(&members(&a)), "{other}");
    }
    let topic = dead_letters_of_topic(&a.tenant, &a.topic);
    assert!(dead_letters(&a).starts_with(&topic));
    assert!(!dead_letters(&group_named("t", "ab", GroupKind::LoadBalance, "g")).starts_with(&topic));
}

#[test]
fn what_is_not_a_key_is_not_read_as_one() {
    for part in ["", "a%2fb", "%41", "a%", "a%2", "a b", "%FF", "%ZZ", "a/b"] {
        assert_eq!(decode_part(part), None, "{part}");
    }
    for key in [
        "/em/groups/t/a/lb",
        "/em/groups/t/a/lb/g/x",
        "/em/groups/t/a/LB/g",
        "/em/groups/t/__a/lb/g",
        "/em/groups//a/lb/g",
        "/em/subs/t/a/lb/g",
        "/em/subs/t/a/lb/g/c/",
    ] {
        assert_eq!(read_group(key), None, "{key}");
        assert_eq!(read_subscription(key), None, "{key}");
    }
    for position in ["7-3-12", "00000000000000000007-0000000003-0000000000000000001x", "a/b/c", ""] {
        assert_eq!(read_dead_letter(&format!("/em/dlq/t/a/lb/g/{position}")), None, "{position}");
    }
}

fn name() -> impl Strategy<Value = String> {
    "[^\\p{Cc}]{1,60}".prop_filter("255 bytes", |text| text.len() <= 255)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_legal_name_round_trips(
        tenant in name(), topic in "[A-Za-z0-9.-][A-Za-z0-9._-]{0,99}", group_name in name(), client in name(),
    ) {
        prop_assume!(topic != "." && topic != "..");
        let id = group_named(&tenant, &topic, GroupKind::LoadBalance, &group_name);
        let client = ClientId::new(&client).expect("legal");
        let key = subscription(&id, &client);
        prop_assert!(key.starts_with(&members(&id)));
        prop_assert_eq!(read_subscription(&key), Some((id.clone(), client)));
        prop_assert_eq!(read_group(&group(&id)), Some(id));
    }

    #[test]
    fn dead_letters_round_trip_and_sort_by_position(
        a in any::<(u64, u32, u64)>(), b in any::<(u64, u32, u64)>(), instance in proptest::option::of(name()),
    ) {
        let letter = |(incarnation, partition, offset): (u64, u32, u64)| DeadLetterId {
            group: group_named("t", "a", GroupKind::LoadBalance, "g"),
            instance: instance.as_deref().map(|text| InstanceId::new(text).expect("legal")),
            incarnation: Incarnation(incarnation),
            partition: PartitionId(partition),
            offset: Offset(offset),
        };
        let (first, second) = (dead_letter(&letter(a)), dead_letter(&letter(b)));
        prop_assert_eq!(read_dead_letter(&first), Some(letter(a)));
        prop_assert_eq!(tenant_of_dead_letter(&first), TenantId::new("t").ok());
        prop_assert_eq!(first.cmp(&second), a.cmp(&b));
    }

    #[test]
    fn any_text_is_read_without_a_panic(text in ".*") {
        let _ = decode_part(&text).map(|decoded| assert_eq!(encode_part(&decoded), text));
        for root in [GROUPS, SUBSCRIPTIONS, DEAD_LETTERS] {
            let key = format!("{root}{text}");
            prop_assert!(read_group(&key).is_none_or(|id| group(&id) == key));
            prop_assert!(read_dead_letter(&key).is_none_or(|id| dead_letter(&id) == key));
        }
    }
}
