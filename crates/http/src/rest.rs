//! What is left of a request's body when the request is answered.
//!
//! A handler may refuse a request by its head, and not read its body. hyper then closes the
//! connection, and the answer does not say so: a client that keeps its connections sends the next
//! request into nothing, and bytes of the body that arrive after the end destroy the answer before
//! the client has read it. So the rest is read and thrown away for a while. If there is more of it,
//! the answer says that it is the connection's last.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body::{Body, Frame, SizeHint};
use hyper::Request;
use hyper::header::EXPECT;
use parking_lot::Mutex;
use tokio::time::timeout;

/// A request's body, as its handler gets it. A request without one has nothing to share.
pub(crate) struct SharedBody<B>(Option<Arc<Mutex<Coming<B>>>>);

/// The same body, as its connection keeps it.
pub(crate) struct Rest<B> {
    coming: Option<Arc<Mutex<Coming<B>>>>,
    /// The client sends the body when it is asked to, which reading it does.
    is_to_be_asked: bool,
}

struct Coming<B> {
    body: B,
    has_ended: bool,
}

/// The request with a body whose rest can be read when it is answered.
pub(crate) fn shared<B: Body>(request: Request<B>) -> (Request<SharedBody<B>>, Rest<B>) {
    let is_to_be_asked = request.headers().contains_key(EXPECT);
    let (head, body) = request.into_parts();
    let coming =
        (!body.is_end_stream()).then(|| Arc::new(Mutex::new(Coming { body, has_ended: false })));
    let request = Request::from_parts(head, SharedBody(coming.clone()));
    (request, Rest { coming, is_to_be_asked })
}

impl<B: Body + Unpin> Rest<B> {
    /// Reads the rest for a time. False if that was not all: then no request can follow on the
    /// connection.
    pub async fn discard(self, time: Duration) -> bool {
        let Some(coming) = self.coming else { return true };
        if coming.lock().has_ended() {
            return true;
        }
        // A handler that has not let go of the body still reads it, for somebody else.
        let is_ours = Arc::strong_count(&coming) == 1;
        if self.is_to_be_asked || !is_ours {
            return false;
        }
        let all = poll_fn(|context| coming.lock().poll_discard(context));
        timeout(time, all).await.unwrap_or(false)
    }
}

type NextFrame<B> = Option<Result<Frame<<B as Body>::Data>, <B as Body>::Error>>;

impl<B: Body + Unpin> Coming<B> {
    fn has_ended(&self) -> bool {
        self.has_ended || self.body.is_end_stream()
    }

    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<NextFrame<B>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        self.has_ended |= matches!(polled, Poll::Ready(None));
        polled
    }

    fn poll_discard(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        loop {
            match self.poll_frame(context) {
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(None) => return Poll::Ready(true),
                Poll::Ready(Some(Err(_))) => return Poll::Ready(false),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl<B: Body + Unpin> Body for SharedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<NextFrame<B>> {
        match &self.0 {
            Some(coming) => coming.lock().poll_frame(context),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|coming| coming.lock().has_ended())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Some(coming) => coming.lock().body.size_hint(),
            None => SizeHint::with_exact(0),
        }
    }
}
