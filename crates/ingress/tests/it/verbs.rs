//! Nack, extend, reject: what a client sees, over any connection.

use serde_json::{Value, json};

use crate::{client::Client, mesh::Mesh};

/// Route, more members, and the word in the answer.
const VERBS: &[(&str, &str, &str)] = &[
    ("/events/ack", "", "acked"),
    ("/events/nack", r#","delayMs":0,"reason":"busy""#, "nacked"),
    ("/events/nack", r#","delayMs":null"#, "nacked"),
    ("/events/extend", r#","extendMs":1000"#, "extended"),
    ("/events/reject", r#","reason":"bad""#, "rejected"),
    ("/events/reject", "", "rejected"),
];

#[tokio::test]
async fn each_verb_answers_for_one_and_for_many_over_another_connection() {
    // covers: U53
    let mesh = Mesh::start().await;
    let mut receiver = Client::connect(mesh.address).await;
    let mut settler = Client::connect(mesh.address).await;
    for (place, (route, more, word)) in VERBS.iter().enumerate() {
        let (topic, client) = (format!("t{place}"), format!("c{place}"));
        receiver.subscribe(&client, &topic).await;
        for id in ["1", "2", "3"] {
            receiver.publish(&topic, id).await;
        }
        let deliveries = receiver.poll(&client, "").await;
        let id = |place: usize| deliveries[place]["deliveryId"].as_str().expect("an id").to_owned();
        let body = |ids: &Value| format!(r#"{{"deliveryId":{ids}{more}}}"#);

        let one = settler.post(route, &body(&json!(id(0)))).await;
        let expected = format!(r#"{{"status":"{word}"}}"#);
        assert_eq!((one.status, one.body.trim_end()), (200, &*expected), "{route}");
        let many = settler.post(route, &body(&json!([id(1), "x", id(2)]))).await;
        let expected = json!({"results":[
            {"deliveryId":id(1),"status":word},
            {"deliveryId":"x","error":"unknown_delivery"},
            {"deliveryId":id(2),"status":word},
        ]});
        assert_eq!((many.status, many.json()), (200, expected), "{route}");
        let none = settler.post(route, &body(&json!([]))).await;
        assert_eq!((none.status, none.body.trim_end()), (200, r#"{"results":[]}"#), "{route}");
        if *word == "acked" || *word == "rejected" {
            let again = settler.post(route, &body(&json!(id(0)))).await;
            assert_eq!((again.status, again.error().as_str()), (404, "unknown_delivery"), "{route}");
        }
        if *more == r#","delayMs":0,"reason":"busy""# {
            let again = receiver.poll(&client, "").await;
            let attempts: Vec<_> = again.iter().map(|delivery| delivery["attempt"].clone()).collect();
            assert_eq!(attempts, [2, 2, 2]);
            let late = settler.post(route, &body(&json!(id(0)))).await;
            assert_eq!((late.status, late.error().as_str()), (404, "unknown_delivery"));
        }
    }
    let text = mesh.signals.text();
    for line in ["eventmesh_nacked_total 6", "eventmesh_extended_total 3", "eventmesh_rejected_total 6"] {
        assert!(text.contains(line), "{line}: {text}");
    }
    mesh.shut_down().await;
}

#[tokio::test]
async fn a_refused_verb_leaves_the_delivery_as_it_is() {
    // covers: U53
    let mesh = Mesh::start().await;
    let mut client = Client::connect(mesh.address).await;
    client.subscribe("c", "t").await;
    client.publish("t", "1").await;
    let id = client.poll("c", "").await[0]["deliveryId"].clone();
    for (route, more) in [
        ("/events/nack", r#","delayMs":"soon""#),
        ("/events/nack", r#","delayMs":43200001"#),
        ("/events/extend", ""),
        ("/events/extend", r#","extendMs":999"#),
        ("/events/extend", r#","extendMs":43200001"#),
        ("/events/reject", r#","reason":{}"#),
        ("/events/drop", ""),
    ] {
        let reply = client.post(route, &format!(r#"{{"deliveryId":{id}{more}}}"#)).await;
        assert!(matches!(reply.status, 400 | 404), "{route} {more}: {reply:?}");
    }
    assert!(client.poll("c", "&timeoutMs=50").await.is_empty());
    let acked = client.post("/events/ack", &json!({ "deliveryId": id }).to_string()).await;
    assert_eq!(acked.status, 200);
    mesh.shut_down().await;
}
