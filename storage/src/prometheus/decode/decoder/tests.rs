//! Tests of how often the same bytes are parsed.

use super::*;

/// Counts series, and stores the length of the last label.
#[derive(Default)]
struct Count(usize, usize);

impl SeriesVisitor for Count {
    fn begin(&mut self, labels: super::super::Labels<'_>) -> Interest {
        (self.0, self.1) = (self.0 + 1, labels.get("pod").map_or(0, str::len));
        Interest::Points
    }

    fn point(&mut self, _: Time, _: f64) {}
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
        let (mut decoder, mut count) = (ResponseDecoder::new(), Count::default());
        for piece in response.as_bytes().chunks(length) {
            decoder.push(piece, &mut count).expect("a valid response");
        }
        decoder.flush(&mut count).expect("all of it");
        assert!(decoder.summary.is_partial, "known before the end of the response");
        let parsed_bytes = decoder.parsed_bytes;
        let summary = decoder.finish(&mut count).expect("all of it");
        assert_eq!((count.0, count.1, summary.series, summary.points), (2, 5, 2, 3));
        // Points are short, and are parsed again with each byte.
        let max = 8 * response.len() + 1000 * MIN_JOINED_BYTES;
        assert!(
            parsed_bytes < max,
            "{parsed_bytes} bytes for {} in pieces of {length}",
            response.len()
        );
    }
}

#[test]
fn an_incomplete_deferred_item_is_a_truncated_response() {
    let (mut decoder, mut count) = (ResponseDecoder::new(), Count::default());
    let response = format!(r#"{{"data":{{"result":[{{"metric":{{"pod":"{}"#, "x".repeat(1000));
    for piece in response.as_bytes().chunks(7) {
        decoder.push(piece, &mut count).expect("no end yet");
    }
    assert!(matches!(decoder.finish(&mut count), Err(DecodeError::Truncated { .. })));
}
