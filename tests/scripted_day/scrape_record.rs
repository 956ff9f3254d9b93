//! The captured scrapes as series of a history.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::support::prometheus_server::History;

/// Names and values.
type Labels = Vec<(String, String)>;

/// The values of all series, with one scrape per step.
pub struct ScrapeRecord {
    from: Timestamp,
    step: SignedDuration,
    scrapes: usize,
    series: BTreeMap<String, BTreeMap<usize, f64>>,
}

impl ScrapeRecord {
    /// An empty record.
    pub fn new(from: Timestamp, step: SignedDuration) -> Self {
        Self { from, step, scrapes: 0, series: BTreeMap::new() }
    }

    /// Time of a scrape.
    fn at(&self, scrape: usize) -> Timestamp {
        self.from + self.step * i32::try_from(scrape).expect("fits")
    }

    /// Time of the latest scrape.
    pub fn end(&self) -> Timestamp {
        self.at(self.scrapes.saturating_sub(1))
    }

    /// Time of the first scrape.
    pub fn start(&self) -> Timestamp {
        self.from
    }

    /// Time from the first to the latest scrape.
    pub fn length(&self) -> SignedDuration {
        self.end().duration_since(self.start())
    }

    /// Number of scrapes.
    pub fn scrapes(&self) -> usize {
        self.scrapes
    }

    /// Adds a scrape of a page.
    pub fn add_scrape(&mut self, page: &str) {
        for line in page.lines().filter(|line| !line.starts_with('#')) {
            let (series, value) = line.rsplit_once(' ').expect("a series and its value");
            let value = match value {
                "+Inf" => f64::INFINITY,
                "NaN" => f64::NAN,
                number => number.parse().expect("a number"),
            };
            self.series.entry(series.to_owned()).or_default().insert(self.scrapes, value);
        }
        self.scrapes += 1;
    }

    /// The interval between scrapes.
    pub fn step(&self) -> SignedDuration {
        self.step
    }

    /// Every series, by its text, with its values by scrape.
    pub fn all(&self) -> impl Iterator<Item = (&str, &BTreeMap<usize, f64>)> {
        self.series.iter().map(|(series, values)| (series.as_str(), values))
    }

    /// Adds a whole series.
    pub fn add_series(&mut self, series: String, values: BTreeMap<usize, f64>) {
        self.series.insert(series, values);
    }

    /// Ends the record after this many scrapes.
    pub fn ends_after(&mut self, scrapes: usize) {
        self.scrapes = scrapes;
    }

    /// The only series of a family whose text contains all of this.
    pub fn single_series(&self, family: &str, parts: &[&str]) -> &str {
        let start = format!("{family}{{");
        let mut found = self.series.keys().filter(|series| {
            series.starts_with(&start) && parts.iter().all(|part| series.contains(part))
        });
        let one = found.next().unwrap_or_else(|| panic!("no {family} with {parts:?}"));
        assert!(found.next().is_none(), "several {family} with {parts:?}");
        one
    }

    /// The last value of a series, which must exist at the end.
    pub fn last_value(&self, series: &str) -> f64 {
        let (scrape, value) = self.series[series].last_key_value().expect("a value");
        assert_eq!(scrape + 1, self.scrapes, "{series} has ended");
        *value
    }

    /// The intervals, by scrape, in which the value of a series satisfies a condition; ends are exclusive.
    pub fn intervals_where(
        &self,
        series: &str,
        is_so: impl Fn(f64) -> bool,
    ) -> Vec<(usize, usize)> {
        let values = self.series.get(series).unwrap_or_else(|| panic!("there is no {series}"));
        let mut times: Vec<(usize, usize)> = Vec::new();
        for (scrape, _) in values.iter().filter(|(_, value)| is_so(**value)) {
            match times.last_mut() {
                Some((_, end)) if *end == *scrape => *end += 1,
                _ => times.push((*scrape, scrape + 1)),
            }
        }
        times
    }

    /// The series as scraped by a Prometheus with our PodMonitor: `honorLabels` is set.
    pub fn history(&self) -> History {
        let (from, step, end) = (self.from, self.step, self.end());
        let mut history = History::new(from, end + step, step);
        for (name, labels, values) in self.scraped() {
            let labels: Vec<(&str, &str)> =
                labels.iter().map(|(name, value)| (&**name, &**value)).collect();
            let values = values.clone();
            history = history.series(name, &labels, move |at| {
                let since = at.as_second() - from.as_second();
                let scrape = usize::try_from(since / step.as_secs()).ok()?;
                values.get(&scrape).copied()
            });
        }
        let all = [("job", "kube-system/plimsoll"), ("instance", "10.0.0.1:8942")];
        history.series("up", &all, |_| Some(1.0))
    }

    /// The series with these names as input of a promtool test, one value per scrape.
    pub fn promtool_input(&self, is_wanted: impl Fn(&str) -> bool) -> Vec<Value> {
        let wanted = self.scraped().filter(|(name, _, _)| is_wanted(name));
        wanted
            .map(|(name, labels, values)| {
                let labels: Vec<String> =
                    labels.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
                let mut was_there = false;
                let values: Vec<String> = (0..self.scrapes)
                    .map(|scrape| {
                        let value = values.get(&scrape);
                        // A series that is missing from a page is stale at once.
                        let word = match value {
                            Some(value) => value.to_string(),
                            None if was_there => "stale".to_owned(),
                            None => "_".to_owned(),
                        };
                        was_there = value.is_some();
                        word
                    })
                    .collect();
                json!({
                    "series": format!("{name}{{{}}}", labels.join(",")),
                    "values": values.join(" "),
                })
            })
            .collect()
    }

    /// Every series as stored: its name, its labels including those of the target, and its values by scrape.
    fn scraped(&self) -> impl Iterator<Item = (&str, Labels, &BTreeMap<usize, f64>)> {
        self.series.iter().map(|(series, values)| {
            let (name, labels) = parse_series(series);
            let mut all = vec![
                ("job".to_owned(), "kube-system/plimsoll".to_owned()),
                ("instance".to_owned(), "10.0.0.1:8942".to_owned()),
                ("pod".to_owned(), "plimsoll-0".to_owned()),
            ];
            if labels.iter().all(|(name, _)| name != "namespace") {
                all.push(("namespace".to_owned(), "kube-system".to_owned()));
            }
            all.extend(labels);
            (name, all, values)
        })
    }
}

/// Name and labels of a series.
pub fn parse_series(series: &str) -> (&str, Labels) {
    let Some((name, rest)) = series.split_once('{') else { return (series, Vec::new()) };
    let mut labels = Vec::new();
    let mut rest = rest.strip_suffix('}').expect("closed");
    while let Some((label, behind)) = rest.split_once("=\"") {
        let mut value = String::new();
        let mut letters = behind.char_indices();
        let mut end = behind.len();
        while let Some((at, letter)) = letters.next() {
            match letter {
                '"' => {
                    end = at + 1;
                    break;
                }
                '\\' => match letters.next() {
                    Some((_, 'n')) => value.push('\n'),
                    Some((_, other)) => value.push(other),
                    None => {}
                },
                other => value.push(other),
            }
        }
        labels.push((label.to_owned(), value));
        rest = behind[end..].trim_start_matches(',');
    }
    (name, labels)
}

#[test]
fn series_are_parsed_with_any_label_value() {
    let (name, labels) = parse_series(r#"a_b{c="d",e="f\"g,h=\\i",j=""}"#);
    let expected = [("c", "d"), ("e", "f\"g,h=\\i"), ("j", "")];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!((name, labels), ("a_b", expected.to_vec()));
    assert_eq!(parse_series("up"), ("up", Vec::new()));
}
