//! Keys that change: files that are read again, sets that are fetched again.

use std::{collections::VecDeque, time::Duration};

use mesh_base::Clock;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{
    issuer::{AUDIENCE, ISSUER, Issuer, claims, filter, settings},
    *,
};

const ALICE: &str = "alice of T1 with writer";
const UNKNOWN_KEY: &str = "denied: the token's key is not known";
const NOT_NOW: &str = "broken for 15s: the issuer's keys could not be fetched lately";
const URL: &str = "https://issuer.example/jwks";

/// Answers as it is told, the last answer again and again.
#[derive(Debug)]
struct FakeFetcher {
    answers: Mutex<VecDeque<Result<Vec<u8>, FetchFailed>>>,
    fetches: watch::Sender<usize>,
}

impl FakeFetcher {
    fn new(first: Result<Value, &str>) -> Arc<Self> {
        let fetcher = Self { answers: Mutex::default(), fetches: watch::Sender::new(0) };
        fetcher.answer(first);
        Arc::new(fetcher)
    }

    /// What is answered from now on.
    fn answer(&self, answer: Result<Value, &str>) {
        let answer = answer.map(|set| set.to_string().into_bytes()).map_err(|why| FetchFailed(why.into()));
        *self.answers.lock() = [answer].into();
    }

    fn fetches(&self) -> usize {
        *self.fetches.borrow()
    }

    /// Waits until it was asked so many times. Time that is paused runs as long as nothing else can.
    async fn fetched(&self, times: usize) {
        let mut fetches = self.fetches.subscribe();
        let reached = fetches.wait_for(|&fetched| fetched >= times);
        tokio::time::timeout(Duration::from_secs(24 * 3600), reached)
            .await
            .unwrap_or_else(|_| panic!("fetched {} times in a day, not {times}", self.fetches()))
            .expect("the fetcher lives");
    }
}

impl KeyFetcher for FakeFetcher {
    fn fetch<'a>(&'a self, url: &'a str, most: usize) -> Fetching<'a> {
        Box::pin(async move {
            assert_eq!((url, most), (URL, 1 << 20));
            self.fetches.send_modify(|fetches| *fetches += 1);
            self.answers.lock().front().expect("an answer").clone()
        })
    }
}

fn fetching(fetcher: &Arc<FakeFetcher>) -> TokenAuthFilter {
    let jwt = JwtSettings {
        key_set_url: Some(URL.into()),
        issuer: Some(ISSUER.into()),
        audience: vec![AUDIENCE.into()],
        ..JwtSettings::default()
    };
    TokenAuthFilter::load_with(&TokenSettings { jwt, ..TokenSettings::default() }, Some(fetcher.clone()))
        .expect("whole settings")
}

fn at(filter: &TokenAuthFilter, token: &str, seconds: u64) -> String {
    told(filter.authenticate(Some(token.as_bytes()), None, NOW.plus(Duration::from_secs(seconds))))
}

/// A token that outlives the test.
fn lasting(issuer: &Issuer) -> String {
    let mut claims = claims();
    claims["exp"] = json!(4_000_000_000_u64);
    issuer.token("EdDSA", &claims)
}

#[tokio::test]
async fn a_key_holds_as_long_as_the_set_has_it() {
    let (old, new) = (Issuer::new("old"), Issuer::new("new"));
    let fetcher = FakeFetcher::new(Ok(old.key_set()));
    let filter = fetching(&fetcher);
    assert_eq!(at(&filter, &lasting(&old), 0), NOT_NOW, "before anything was fetched");
    assert_eq!(filter.refresh(NOW).await, Ok(Reload::Changed));
    assert_eq!(at(&filter, &lasting(&old), 0), ALICE);
    assert_eq!(at(&filter, &lasting(&new), 0), UNKNOWN_KEY);
    assert_eq!(filter.refresh(NOW).await, Ok(Reload::Unchanged));

    // Both are in the set.
    fetcher.answer(Ok(json!({"keys": [old.jwk("EdDSA"), new.jwk("EdDSA")]})));
    assert_eq!(filter.refresh(NOW).await, Ok(Reload::Changed));
    assert_eq!(at(&filter, &lasting(&old), 0), ALICE);
    assert_eq!(at(&filter, &lasting(&new), 0), ALICE);

    // The old one is withdrawn: also a token that was verified before ends with it.
    fetcher.answer(Ok(new.key_set()));
    assert_eq!(filter.refresh(NOW).await, Ok(Reload::Changed));
    assert_eq!(at(&filter, &lasting(&old), 0), UNKNOWN_KEY);
    assert_eq!(at(&filter, &lasting(&new), 0), ALICE);
}

#[tokio::test]
async fn a_set_that_cannot_be_fetched_again_holds_for_an_hour_and_not_longer() {
    let issuer = Issuer::new("k");
    let fetcher = FakeFetcher::new(Ok(issuer.key_set()));
    let filter = fetching(&fetcher);
    let token = lasting(&issuer);
    assert_eq!(filter.refresh(NOW).await, Ok(Reload::Changed));
    let later = NOW.plus(Duration::from_secs(1800));
    for (answer, told) in [
        (Err("connection refused"), "connection refused"),
        (Ok(json!({"keys": []})), "it holds no key that can verify tokens of the allowed algorithms"),
        (Ok(json!("x".repeat(1 << 20))), "the key set has more than 1048576 bytes"),
    ] {
        fetcher.answer(answer);
        assert_eq!(filter.refresh(later).await, Err(FetchFailed(told.into())));
        assert_eq!(at(&filter, &token, 1800), ALICE, "after {told}");
    }
    assert_eq!(at(&filter, &token, 3600), ALICE);
    assert_eq!(at(&filter, &token, 3601), NOT_NOW, "also what is in the cache");
    fetcher.answer(Ok(issuer.key_set()));
    assert_eq!(filter.refresh(NOW.plus(Duration::from_secs(3700))).await, Ok(Reload::Unchanged));
    assert_eq!(at(&filter, &token, 3701), ALICE);
}

#[tokio::test]
async fn secrets_in_a_fetched_set_are_never_used() {
    let issuer = Issuer::new("k");
    let fetcher = FakeFetcher::new(Ok(json!({"keys": [issuer.jwk("HS256"), issuer.jwk("EdDSA")]})));
    let folder = Folder::new();
    let jwt = JwtSettings {
        key_set_url: Some(URL.into()),
        secret_file: Some(folder.write("secret", "the secret of the operator, very long")),
        issuer: Some(ISSUER.into()),
        audience: vec![AUDIENCE.into()],
        ..JwtSettings::default()
    };
    let settings = TokenSettings { jwt, ..TokenSettings::default() };
    let filter = TokenAuthFilter::load_with(&settings, Some(fetcher.clone())).expect("whole settings");
    filter.refresh(NOW).await.expect("fetched");
    assert_eq!(at(&filter, &issuer.token("EdDSA", &claims()), 0), ALICE);
    let by_published_secret = issuer.token("HS256", &claims());
    assert_eq!(at(&filter, &by_published_secret, 0), "denied: the token's signature does not hold");
}

#[tokio::test(start_paused = true)]
async fn an_unknown_key_makes_the_set_be_fetched_sooner_but_not_often() {
    let (old, new) = (Issuer::new("old"), Issuer::new("new"));
    let fetcher = FakeFetcher::new(Ok(old.key_set()));
    let filter = Arc::new(fetching(&fetcher));
    let clock = Clock::starting_at(NOW);
    let ask =
        |issuer: &Issuer| told(filter.authenticate(Some(lasting(issuer).as_bytes()), None, clock.now()));
    let fresh = filter.clone();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move { fresh.keep_keys_fresh(clock).await });
    fetcher.fetched(1).await;
    tokio::task::yield_now().await;
    assert_eq!(ask(&old), ALICE);

    // The first unknown key is looked for at once; time stands still meanwhile.
    fetcher.answer(Ok(new.key_set()));
    assert_eq!(ask(&new), UNKNOWN_KEY);
    fetcher.fetched(2).await;
    tokio::task::yield_now().await;
    assert_eq!(clock.now(), NOW);
    assert_eq!(ask(&new), ALICE);

    // A thousand more within 30 seconds are not.
    for _ in 0..1000 {
        assert_eq!(ask(&old), UNKNOWN_KEY);
    }
    clock.sleep_until(NOW.plus(Duration::from_millis(29_999))).await;
    assert_eq!(ask(&old), UNKNOWN_KEY);
    clock.sleep_until(NOW.plus(Duration::from_secs(30))).await;
    assert_eq!(fetcher.fetches(), 2);
    assert_eq!(ask(&old), UNKNOWN_KEY);
    fetcher.fetched(3).await;
    assert_eq!(clock.now(), NOW.plus(Duration::from_secs(30)));

    // Without being asked it is fetched after the interval, and sooner after a failure.
    fetcher.answer(Err("connection refused"));
    fetcher.fetched(4).await;
    assert_eq!(clock.now(), NOW.plus(Duration::from_secs(330)));
    fetcher.fetched(5).await;
    assert_eq!(clock.now(), NOW.plus(Duration::from_secs(345)));
    assert_eq!(ask(&new), ALICE);
}

#[test]
fn key_files_are_read_again_and_what_cannot_be_used_leaves_what_was_there() {
    let (folder, old, new) = (Folder::new(), Issuer::new("old"), Issuer::new("new"));
    let secret = |issuer: &Issuer| String::from_utf8(issuer.secret.clone()).expect("text");
    let filter = filter(JwtSettings {
        secret_file: Some(folder.write("secret", &secret(&old))),
        ..settings(&folder, &old.key_set())
    });
    let told = |issuer: &Issuer| {
        ["HS256", "EdDSA"].map(|algorithm| bearer(&filter, &issuer.token(algorithm, &claims())))
    };
    assert_eq!(told(&old), [ALICE, ALICE]);
    assert_eq!(filter.reload().expect("looked"), Reload::Unchanged);

    // One of two cannot be used: the other holds nevertheless.
    folder.write("secret", "short");
    folder.write("jwks.json", &new.key_set().to_string());
    assert!(filter.reload().is_err());
    assert_eq!(told(&old), [ALICE, UNKNOWN_KEY]);
    assert_eq!(told(&new), ["denied: the token's signature does not hold", ALICE]);

    folder.write("secret", &secret(&new));
    folder.write("jwks.json", "{");
    assert!(filter.reload().is_err());
    assert_eq!(told(&new), [ALICE, ALICE]);
}
