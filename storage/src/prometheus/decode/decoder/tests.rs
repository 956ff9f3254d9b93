//! Tests of how often the same bytes are parsed.

use futures::{FutureExt as _, stream};

use super::*;
use crate::prometheus::decode::{Labels, input::LONGEST};

/// Counts series, and stores the length of the last label.
#[derive(Default)]
struct Count(usize, usize);

impl SeriesVisitor for Count {
    fn begin(&mut self, labels: Labels<'_>) -> Interest {
        (self.0, self.1) = (self.0 + 1, labels.get("pod").map_or(0, str::len));
        Interest::Points
    }
}

/// Decodes a response in pieces of this length. Also returns the number of bytes that were parsed, repeated attempts included.
fn decode(
    response: &str,
    length: usize,
    visitor: &mut Count,
) -> Result<(ResponseSummary, usize), DecodeError> {
    let pieces = response.as_bytes().chunks(length).map(|piece| Ok(Bytes::copy_from_slice(piece)));
    let mut decoder = Decoder {
        input: Input::new(stream::iter(pieces)),
        kind: ResponseKind::QueryResult,
        visitor,
        check: |_: &ResponseSummary, _: &Count| Ok(()),
        labels: LabelBuffer::default(),
        envelope: Envelope::default(),
        summary: ResponseSummary::default(),
    };
    decoder.response().now_or_never().expect("it does not wait")?;
    let attempted_bytes = decoder.input.attempted_bytes;
    Ok((decoder.finish()?, attempted_bytes))
}

#[test]
fn a_response_in_single_bytes_is_read_in_linear_time() {
    let long = "x".repeat(LONGEST / 2);
    let response = format!(
        r#"{{"status":"success","data":{{"resultType":"matrix","result":[
            {{"metric":{{"pod":"{long}"}},"values":[[1000,"1"],[1060,"2"]]}},
            {{"metric":{{"pod":"short"}},"values":[[1000,"1"]]}}]}},"isPartial":true}}"#
    );
    for length in [1, 100, 1000, response.len()] {
        let mut count = Count::default();
        let (summary, attempted_bytes) = decode(&response, length, &mut count).expect("all of it");
        assert!(summary.is_partial);
        assert_eq!((count.0, count.1, summary.series, summary.points), (2, 5, 2, 3));
        // Each token is parsed again with the rest of what has arrived.
        let max = 8 * response.len() + 100 * length.min(1 << 16);
        assert!(
            attempted_bytes < max,
            "{attempted_bytes} bytes for {} in pieces of {length}",
            response.len()
        );
    }
}

#[test]
fn an_incomplete_long_label_is_a_truncated_response() {
    let response = format!(r#"{{"data":{{"result":[{{"metric":{{"pod":"{}"#, "x".repeat(1000));
    let decoded = decode(&response, 7, &mut Count::default());
    assert!(matches!(decoded, Err(DecodeError::Truncated { bytes }) if bytes > 1000));
}
