//! Reading the body of a request: bounded in size, in time and in what all requests hold together.
//!
//! A declared length is checked before anything is read, a chunked body is counted. What has arrived, not what
//! was declared, counts against the budget of the process, so that a client that only promises a body holds
//! nothing. Bodies that fit into what has arrived already are read without a timer and without a copy.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::Poll,
    time::Duration,
};

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::{
    HeaderMap,
    header::{CONTENT_ENCODING, TRANSFER_ENCODING},
};
use http_body::{Body as _, Frame};
use mesh_base::Lease;
use mesh_frame::TenantId;

use crate::{
    ApiError, ErrorCode,
    shares::{BodyShare, SMALL, TenantShares},
};

/// Bounds of request bodies.
#[derive(Clone, Copy, Debug)]
pub struct BodyLimits {
    /// Bytes of one body.
    pub body_bytes: u64,
    /// How long a body may take, from its head to its end.
    pub timeout: Duration,
    /// Bytes of all bodies in flight.
    pub in_flight_bytes: u64,
}

impl BodyLimits {
    /// 12 MiB a body within 30 s, 256 MiB in all.
    pub const DEFAULT: Self =
        Self { body_bytes: 12 << 20, timeout: Duration::from_secs(30), in_flight_bytes: 256 << 20 };
}

impl Default for BodyLimits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// After a refusal this much of a body is read and thrown away, so that the client gets to read the answer.
const DISCARD_BYTES: u64 = 64 << 20;
/// And for this long.
const DISCARD_TIME: Duration = Duration::from_secs(1);

/// Reads bodies; clones share the budget.
#[derive(Clone, Debug)]
pub struct BodyReader {
    limits: BodyLimits,
    in_flight: Arc<AtomicU64>,
    shares: TenantShares,
}

/// A body that was read. Its bytes count against the budget until it is dropped.
#[derive(Debug)]
pub struct ReadBody {
    /// The bytes.
    pub bytes: Bytes,
    _held: Vec<Lease>,
    _first: Option<Lease>,
    _share: Option<BodyShare>,
}

impl BodyReader {
    /// A reader within these bounds, of an empty budget.
    pub fn new(limits: BodyLimits) -> Self {
        Self { limits, in_flight: Arc::default(), shares: TenantShares::default() }
    }

    /// Whether the body may be read, by what its head declares. Nothing is read.
    ///
    /// # Errors
    /// `too_large`, or `unsupported_media_type` for an encoding.
    pub fn check_declared(&self, headers: &HeaderMap, body: &Body) -> Result<(), ApiError> {
        check_encoding(headers)?;
        check_transfer(headers)?;
        if body.size_hint().lower() > self.limits.body_bytes { Err(self.too_large()) } else { Ok(()) }
    }

    /// The whole body, of a caller of this tenant.
    ///
    /// # Errors
    /// `too_large`, `overloaded`, `timeout`, or `invalid_argument` when it ends too early.
    pub async fn read(&self, body: &mut Body, tenant: &TenantId) -> Result<ReadBody, ApiError> {
        if body.is_end_stream() {
            return Ok(ReadBody { bytes: Bytes::new(), _held: Vec::new(), _first: None, _share: None });
        }
        let mut collected = Collected::of(tenant);
        if self.read_what_is_there(body, &mut collected).await? {
            return Ok(collected.finish());
        }
        match tokio::time::timeout(self.limits.timeout, self.read_to_end(body, &mut collected)).await {
            Ok(Ok(())) => Ok(collected.finish()),
            Ok(Err(error)) => Err(error),
            Err(_elapsed) => Err(ApiError::new(
                ErrorCode::Timeout,
                format!("the body did not arrive within {} ms", self.limits.timeout.as_millis()),
            )),
        }
    }

    /// Reads frames while they are there; `true`: that was all of it.
    async fn read_what_is_there(&self, body: &mut Body, into: &mut Collected<'_>) -> Result<bool, ApiError> {
        // hyper gives the body's first bytes only after it was asked for them once.
        let mut asked = false;
        poll_fn(|cx| {
            loop {
                match Pin::new(&mut *body).poll_frame(cx) {
                    Poll::Ready(frame) => match self.take(frame, into) {
                        Ok(false) if body.is_end_stream() => return Poll::Ready(Ok(true)),
                        Ok(false) => {}
                        other => return Poll::Ready(other),
                    },
                    Poll::Pending if asked => return Poll::Ready(Ok(false)),
                    Poll::Pending => {
                        asked = true;
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                }
            }
        })
        .await
    }

    async fn read_to_end(&self, body: &mut Body, into: &mut Collected<'_>) -> Result<(), ApiError> {
        while !body.is_end_stream() {
            let frame = next_frame(body).await;
            if self.take(frame, into)? {
                break;
            }
        }
        Ok(())
    }

    /// Takes a frame; `true`: there are no more.
    fn take(
        &self,
        frame: Option<Result<Frame<Bytes>, axum::Error>>,
        into: &mut Collected<'_>,
    ) -> Result<bool, ApiError> {
        let Some(frame) = frame else { return Ok(true) };
        let frame = frame.map_err(|_error| ApiError::invalid("the body ended before its end"))?;
        // Trailers are of no use here.
        let Ok(data) = frame.into_data() else { return Ok(false) };
        if into.bytes as u64 + data.len() as u64 > self.limits.body_bytes {
            return Err(self.too_large());
        }
        into.charge(data.len() as u64, self)?;
        into.push(data);
        Ok(false)
    }

    fn too_large(&self) -> ApiError {
        ApiError::new(
            ErrorCode::TooLarge,
            format!(
                "the body is over the limit of {} bytes (eventmesh.http.maxBodyBytes)",
                self.limits.body_bytes
            ),
        )
    }
}

/// What has arrived of a body.
struct Collected<'a> {
    tenant: &'a TenantId,
    share: Option<BodyShare>,
    bytes: usize,
    first: Bytes,
    more: BytesMut,
    first_lease: Option<Lease>,
    leases: Vec<Lease>,
    charged: u64,
    charged_for: u64,
}

impl<'a> Collected<'a> {
    fn of(tenant: &'a TenantId) -> Self {
        Self {
            tenant,
            share: None,
            bytes: 0,
            first: Bytes::new(),
            more: BytesMut::new(),
            first_lease: None,
            leases: Vec::new(),
            charged: 0,
            charged_for: 0,
        }
    }

    /// Charges the budget for more bytes, ahead in growing steps, so that a body takes few leases.
    fn charge(&mut self, bytes: u64, of: &BodyReader) -> Result<(), ApiError> {
        self.charged_for += bytes;
        if self.charged_for <= self.charged {
            return Ok(());
        }
        let units = if self.charged == 0 { bytes } else { bytes.max(self.charged / 2) };
        let limit = of.limits.in_flight_bytes;
        let overloaded =
            || ApiError::new(ErrorCode::Overloaded, "too many request bodies are being read; try again");
        if self.charged > 0 || units > SMALL {
            let left = limit.saturating_sub(of.in_flight.load(Ordering::Acquire));
            let share = self.share.get_or_insert_with(|| of.shares.body_of(self.tenant));
            if !share.take(units, left) {
                return Err(overloaded());
            }
        }
        let lease = Lease::take(&of.in_flight, units, limit).ok_or_else(overloaded)?;
        self.charged += units;
        match &self.first_lease {
            None => self.first_lease = Some(lease),
            Some(_) => self.leases.push(lease),
        }
        Ok(())
    }

    fn push(&mut self, data: Bytes) {
        if self.bytes == 0 {
            self.first = data;
            self.bytes = self.first.len();
            return;
        }
        if self.more.is_empty() {
            self.more.reserve(self.first.len() + data.len());
            self.more.extend_from_slice(&self.first);
        }
        self.bytes += data.len();
        self.more.extend_from_slice(&data);
    }

    fn finish(self) -> ReadBody {
        let bytes = if self.more.is_empty() { self.first } else { self.more.freeze() };
        ReadBody { bytes, _held: self.leases, _first: self.first_lease, _share: self.share }
    }
}

/// Reads and throws away what is left of a body, within bounds; `true`: all of it.
pub async fn discard(body: &mut Body) -> bool {
    if body.is_end_stream() {
        return true;
    }
    let discarding = async {
        let mut bytes = 0;
        while let Some(frame) = next_frame(body).await {
            let Ok(frame) = frame else { return false };
            bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
            if bytes > DISCARD_BYTES {
                return false;
            }
        }
        true
    };
    tokio::time::timeout(DISCARD_TIME, discarding).await.unwrap_or(false)
}

fn next_frame(body: &mut Body) -> impl Future<Output = Option<Result<Frame<Bytes>, axum::Error>>> {
    poll_fn(move |cx| Pin::new(&mut *body).poll_frame(cx))
}

/// Refuses a transfer coding that would have to be undone (RFC 9112, 6.1): hyper undoes chunks and nothing else.
fn check_transfer(headers: &HeaderMap) -> Result<(), ApiError> {
    let mut values = headers.get_all(TRANSFER_ENCODING).iter();
    let is_understood = values.next().is_none_or(|value| value.as_bytes().eq_ignore_ascii_case(b"chunked"));
    if is_understood && values.next().is_none() {
        return Ok(());
    }
    let error =
        ApiError::new(ErrorCode::UnsupportedMediaType, "no Transfer-Encoding but chunked is understood");
    Err(ApiError { closes: true, ..error })
}

/// Only what is sent as it is can be read.
fn check_encoding(headers: &HeaderMap) -> Result<(), ApiError> {
    for value in headers.get_all(CONTENT_ENCODING) {
        let codings = value.to_str().unwrap_or("?").split(',').map(str::trim);
        if let Some(coding) =
            codings.into_iter().find(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case("identity"))
        {
            let shown: String = coding.chars().take(40).collect();
            return Err(ApiError::new(
                ErrorCode::UnsupportedMediaType,
                format!("Content-Encoding {shown:?} is not supported: send the body as it is"),
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use http::HeaderValue;
    use http_body_util::StreamBody;

    use super::*;

    fn chunks(sizes: &[usize]) -> Body {
        let frames: Vec<Result<Frame<Bytes>, std::io::Error>> =
            sizes.iter().map(|size| Ok(Frame::data(Bytes::from(vec![b'x'; *size])))).collect();
        Body::new(StreamBody::new(stream::iter(frames)))
    }

    fn reader() -> BodyReader {
        let limits =
            BodyLimits { body_bytes: 100, timeout: Duration::from_millis(500), in_flight_bytes: 150 };
        BodyReader::new(limits)
    }

    async fn read(reader: &BodyReader, mut body: Body) -> Result<ReadBody, ErrorCode> {
        reader.check_declared(&HeaderMap::new(), &body).map_err(|error| error.code)?;
        let tenant = TenantId::new("t").expect("legal");
        reader.read(&mut body, &tenant).await.map_err(|error| error.code)
    }

    #[tokio::test]
    async fn a_body_is_counted_whether_declared_or_chunked() {
        let reader = reader();
        assert_eq!(read(&reader, Body::empty()).await.expect("legal").bytes.len(), 0);
        assert_eq!(read(&reader, chunks(&[60, 0, 40])).await.expect("at the limit").bytes.len(), 100);
        assert_eq!(read(&reader, chunks(&[60, 41])).await.expect_err("over"), ErrorCode::TooLarge);
        assert_eq!(read(&reader, Body::from(vec![0; 101])).await.expect_err("over"), ErrorCode::TooLarge);
        assert_eq!(reader.in_flight.load(Ordering::Relaxed), 0, "everything came back");
    }

    #[tokio::test]
    async fn bodies_in_flight_share_a_budget() {
        let reader = reader();
        let first = read(&reader, chunks(&[50, 50])).await.expect("within");
        assert_eq!(read(&reader, chunks(&[30, 30])).await.expect_err("over budget"), ErrorCode::Overloaded);
        drop(first);
        assert!(read(&reader, chunks(&[30, 30])).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_body_times_out_and_a_refused_one_is_discarded_within_bounds() {
        let slow = || Body::new(StreamBody::new(stream::pending::<Result<Frame<Bytes>, std::io::Error>>()));
        assert_eq!(read(&reader(), slow()).await.expect_err("slow"), ErrorCode::Timeout);
        let before = tokio::time::Instant::now();
        assert!(!discard(&mut slow()).await);
        assert_eq!(before.elapsed(), DISCARD_TIME);
        assert!(discard(&mut chunks(&[1_000, 1_000])).await);
    }

    #[test]
    fn nothing_but_chunks_is_a_transfer_coding() {
        let check = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(TRANSFER_ENCODING, HeaderValue::from_static(value));
            }
            check_transfer(&headers).map_err(|error| error.code)
        };
        assert_eq!((check(&[]), check(&["chunked"]), check(&["Chunked"])), (Ok(()), Ok(()), Ok(())));
        for bad in [&["gzip, chunked"][..], &["gzip", "chunked"], &["chunked, chunked"], &["identity"]] {
            assert_eq!(check(bad), Err(ErrorCode::UnsupportedMediaType), "{bad:?}");
        }
    }

    #[test]
    fn only_identity_is_an_encoding() {
        // covers: U174
        let check = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static(value));
            check_encoding(&headers).map_err(|error| error.code)
        };
        for fine in ["identity", "Identity", ""] {
            assert_eq!(check(fine), Ok(()), "{fine}");
        }
        for bad in ["gzip", "deflate", "zstd", "gzip, gzip", "identity, br", "x"] {
            assert_eq!(check(bad), Err(ErrorCode::UnsupportedMediaType), "{bad}");
        }
    }
}
