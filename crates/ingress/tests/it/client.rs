//! A client that speaks HTTP/1.1 byte by byte, so that a test can also speak it badly.

use std::{collections::HashMap, net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

/// No answer is waited for longer than this.
const PATIENCE: Duration = Duration::from_secs(20);

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    /// The code of an error, which must have both members.
    pub(crate) fn error(&self) -> String {
        let json = self.json();
        assert!(json["message"].as_str().is_some_and(|text| !text.is_empty()), "{self:?}");
        json["error"].as_str().unwrap_or_else(|| panic!("no code: {self:?}")).to_owned()
    }
}

/// A connection.
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self { stream: BufReader::new(TcpStream::connect(address).await.expect("a connection")) }
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).await.expect("the server reads");
    }

    /// As [`Client::send`] where the server may have closed already.
    pub(crate) async fn try_send(&mut self, bytes: &[u8]) -> bool {
        self.stream.get_mut().write_all(bytes).await.is_ok()
    }

    /// The next answer; `None` when the connection was closed.
    pub(crate) async fn reply(&mut self) -> Option<Reply> {
        tokio::time::timeout(PATIENCE, self.read()).await.expect("an answer or the end in time")
    }

    async fn read(&mut self) -> Option<Reply> {
        let mut line = String::new();
        if self.stream.read_line(&mut line).await.unwrap_or(0) == 0 {
            return None;
        }
        let status = line.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a status line");
        let mut headers = HashMap::new();
        loop {
            line.clear();
            self.stream.read_line(&mut line).await.expect("a header");
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            headers.insert(name.to_ascii_lowercase(), value.to_owned());
        }
        let length = headers.get("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).await.expect("the body");
        Some(Reply { status, headers, body: String::from_utf8(body).expect("UTF-8") })
    }

    /// Everything until the server closes.
    pub(crate) async fn raw_head(&mut self) -> String {
        let mut text = String::new();
        let reading = self.stream.read_to_string(&mut text);
        tokio::time::timeout(PATIENCE, reading).await.expect("the end in time").expect("text");
        text
    }

    /// A request with a body as it is; `headers` end in `\r\n` each.
    pub(crate) async fn call(&mut self, method: &str, target: &str, headers: &str, body: &[u8]) -> Reply {
        let length = body.len();
        let head =
            format!("{method} {target} HTTP/1.1\r\nHost: t\r\n{headers}Content-Length: {length}\r\n\r\n");
        self.send(&[head.as_bytes(), body].concat()).await;
        self.reply().await.expect("an answer")
    }

    pub(crate) async fn get(&mut self, target: &str) -> Reply {
        self.send(format!("GET {target} HTTP/1.1\r\nHost: t\r\n\r\n").as_bytes()).await;
        self.reply().await.expect("an answer")
    }

    pub(crate) async fn post(&mut self, target: &str, body: &str) -> Reply {
        self.call("POST", target, "Content-Type: application/json\r\n", body.as_bytes()).await
    }

    pub(crate) async fn publish(&mut self, topic: &str, id: &str) {
        let reply = self.post(&format!("/events/publish?topic={topic}"), &event(id)).await;
        assert_eq!(reply.status, 202, "{reply:?}");
    }

    pub(crate) async fn subscribe(&mut self, client: &str, topic: &str) {
        let body = format!(r#"{{"clientId":"{client}","topic":"{topic}","mode":"LOAD_BALANCE"}}"#);
        let reply = self.post("/events/subscribe", &body).await;
        assert_eq!(reply.status, 200, "{reply:?}");
    }

    /// Polls and gives the deliveries.
    pub(crate) async fn poll(&mut self, client: &str, more: &str) -> Vec<serde_json::Value> {
        let reply = self.get(&format!("/events/poll?clientId={client}{more}")).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json().as_array().expect("an array").clone()
    }
}

pub(crate) fn event(id: &str) -> String {
    format!(r#"{{"specversion":"1.0","id":"{id}","source":"/t","type":"t.e","data":{{"n":1}}}}"#)
}
