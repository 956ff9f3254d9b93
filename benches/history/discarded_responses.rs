//! Sends Plimsoll's requests with the same concurrency, and discards the responses.

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::{Request as Http, header::CONTENT_TYPE};
use http_body_util::{BodyExt as _, Full};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use plimsoll_storage::prometheus::{client::QueryLimits, transport::Transport as _};

use super::{
    plimsoll_reader::{Request, transport},
    reader_process::{Figures, Task},
};

/// With Plimsoll's HTTP transport, so responses are compressed if the server supports it.
pub async fn read_with_transport(task: &Task) -> Figures {
    let door = transport(task);
    let timeout = QueryLimits::default().timeout;
    let read = async |request: Request| {
        let form: Vec<(&str, String)> =
            request.form.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
        let answer = door.send(&request.path, &form, timeout).await;
        let mut answer = answer.expect("the server answers");
        let mut bytes = 0;
        while let Some(piece) = answer.chunk().await.expect("a complete response") {
            bytes += piece.len() as u64;
        }
        bytes
    };
    each(task, read).await
}

/// Like `curl --data ... > /dev/null`, except that the connection is reused.
pub async fn read_as_curl(task: &Task) -> Figures {
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let read = async |Request { path, form }: Request| {
        let mut body = form_urlencoded::Serializer::new(String::new());
        body.extend_pairs(&form);
        let request = Http::post(format!("{}{path}", task.url))
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(Full::from(body.finish()))
            .expect("a request");
        let mut body = client.request(request).await.expect("the server answers").into_body();
        let mut bytes = 0;
        while let Some(frame) = body.frame().await {
            bytes +=
                frame.expect("a complete response").data_ref().map_or(0, |data| data.len() as u64);
        }
        bytes
    };
    each(task, read).await
}

async fn each(task: &Task, read: impl AsyncFn(Request) -> u64) -> Figures {
    let text = std::fs::read(&task.requests).expect("Plimsoll has recorded them");
    let requests: Vec<Request> = serde_json::from_slice(&text).expect("requests");
    let count = requests.len() as u64;
    let read = &read;
    let sizes = stream::iter(requests).map(|request| async move { read(request).await });
    let bytes =
        sizes.buffer_unordered(task.queries).fold(0, |all, bytes| async move { all + bytes });
    Figures { requests: count, bytes: bytes.await, ..Figures::default() }
}
