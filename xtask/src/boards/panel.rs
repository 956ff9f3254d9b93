//! One panel: its queries, its type, and its JSON.

use serde_json::{Map, Value, json};

use super::query::{Shape, Target};

/// The visualization of a panel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Bars,
    Gauge,
    Stat,
    Table,
    Timeline,
    TimeSeries,
}

/// One panel. The row that contains it decides its position.
#[derive(Clone, Debug)]
pub(super) struct Panel {
    json: Value,
    targets: Vec<Target>,
    overrides: Vec<Value>,
    pub width: u64,
    pub height: u64,
}

impl Kind {
    const fn word(self) -> &'static str {
        match self {
            Self::Bars => "bargauge",
            Self::Gauge => "gauge",
            Self::Stat => "stat",
            Self::Table => "table",
            Self::Timeline => "state-timeline",
            Self::TimeSeries => "timeseries",
        }
    }

    fn options(self) -> Value {
        let last = json!({"calcs": ["lastNotNull"], "fields": "", "values": false});
        let legend = json!({
            "calcs": [], "displayMode": "list", "placement": "bottom", "showLegend": true,
        });
        match self {
            Self::Bars => json!({
                "displayMode": "basic", "minVizHeight": 16, "minVizWidth": 8,
                "namePlacement": "left", "orientation": "horizontal", "reduceOptions": last,
                "showUnfilled": true, "sizing": "auto", "valueMode": "text",
            }),
            Self::Gauge => json!({
                "orientation": "auto", "reduceOptions": last, "showThresholdLabels": false,
                "showThresholdMarkers": true,
            }),
            Self::Stat => json!({
                "colorMode": "value", "graphMode": "none", "justifyMode": "auto",
                "orientation": "auto", "reduceOptions": last, "showPercentChange": false,
                "textMode": "auto", "wideLayout": true,
            }),
            Self::Table => json!({
                "cellHeight": "sm", "showHeader": true,
                "footer": {"countRows": false, "fields": "", "reducer": ["sum"], "show": false},
            }),
            Self::Timeline => json!({
                "alignValue": "left", "legend": {
                    "displayMode": "list", "placement": "bottom", "showLegend": false,
                },
                "mergeValues": true, "perPage": 25, "rowHeight": 0.8, "showValue": "never",
                "tooltip": {"mode": "single", "sort": "none"},
            }),
            Self::TimeSeries => json!({
                "legend": legend, "tooltip": {"mode": "multi", "sort": "desc"},
            }),
        }
    }

    fn custom(self) -> Value {
        match self {
            Self::Table => json!({
                "align": "auto", "cellOptions": {"type": "auto"}, "filterable": true,
                "inspect": false,
            }),
            Self::Timeline => json!({"fillOpacity": 80, "lineWidth": 0}),
            Self::TimeSeries => json!({
                "drawStyle": "line", "fillOpacity": 0, "lineInterpolation": "linear",
                "lineWidth": 1, "showPoints": "never", "spanNulls": false,
                "stacking": {"group": "A", "mode": "none"}, "thresholdsStyle": {"mode": "off"},
            }),
            Self::Bars | Self::Gauge | Self::Stat => json!({}),
        }
    }

    const fn colors(self) -> &'static str {
        match self {
            Self::TimeSeries => "palette-classic",
            _ => "thresholds",
        }
    }
}

// === impl Panel ===

impl Panel {
    /// A panel without targets. `unit` is one of Grafana's units; `none` is for plain numbers and for cores, for
    /// which Grafana has no unit.
    pub fn new(kind: Kind, title: &str, description: &str, unit: &str) -> Self {
        let json = json!({
            "datasource": datasource(),
            "description": description,
            "fieldConfig": {
                "defaults": {
                    "color": {"mode": kind.colors()},
                    "custom": kind.custom(),
                    "mappings": [],
                    "thresholds": {"mode": "absolute", "steps": [{"color": "text", "value": null}]},
                    "unit": unit,
                },
            },
            "options": kind.options(),
            "title": title,
            "type": kind.word(),
        });
        Self { json, targets: Vec::new(), overrides: Vec::new(), width: 12, height: 8 }
    }

    /// Sets the size: `width` of the 24 columns, `height` rows of 38 pixels.
    pub fn size(mut self, width: u64, height: u64) -> Self {
        (self.width, self.height) = (width, height);
        self
    }

    /// Adds a query.
    pub fn target(mut self, target: Target) -> Self {
        self.targets.push(target);
        self
    }

    /// Sets the value at this path.
    pub fn set(mut self, path: &str, value: impl Into<Value>) -> Self {
        put(&mut self.json, path, value.into());
        self
    }

    /// Sets a field option of all series.
    pub fn field(self, path: &str, value: impl Into<Value>) -> Self {
        self.set(&format!("fieldConfig.defaults.{path}"), value)
    }

    /// Shows several values below each other, each with its name.
    pub fn named(self) -> Self {
        self.set("options.textMode", "value_and_name").set("options.orientation", "horizontal")
    }

    /// The text that is shown if there is no data.
    pub fn empty(self, text: &str) -> Self {
        self.field("noValue", text)
    }

    /// Colors by value: `first` from the minimum, each other color from its value on.
    pub fn thresholds(self, first: &str, others: &[(f64, &str)]) -> Self {
        let bottom = json!({"color": first, "value": null});
        let steps = others.iter().map(|(value, color)| json!({"color": color, "value": value}));
        let steps: Vec<Value> = std::iter::once(bottom).chain(steps).collect();
        self.field("thresholds.steps", steps)
    }

    /// Texts and colors for single values.
    pub fn words(self, words: &[(&str, &str, &str)]) -> Self {
        let options = words.iter().enumerate().map(|(index, (value, text, color))| {
            ((*value).to_owned(), json!({"color": color, "index": index, "text": text}))
        });
        let options: Map<String, Value> = options.collect();
        self.field("mappings", json!([{"options": options, "type": "value"}]))
    }

    /// Options of the field with this name.
    pub fn only(self, name: &str, properties: &[(&str, Value)]) -> Self {
        self.matching("byName", name, properties)
    }

    /// Options of the fields whose names match.
    pub fn only_like(self, pattern: &str, properties: &[(&str, Value)]) -> Self {
        self.matching("byRegexp", pattern, properties)
    }

    fn matching(mut self, matcher: &str, name: &str, properties: &[(&str, Value)]) -> Self {
        let properties: Vec<Value> =
            properties.iter().map(|(id, value)| json!({"id": id, "value": value})).collect();
        self.overrides
            .push(json!({"matcher": {"id": matcher, "options": name}, "properties": properties}));
        self
    }

    /// Stacks the lines as areas.
    pub fn stacked(self) -> Self {
        self.field("custom.stacking.mode", "normal").field("custom.fillOpacity", 40)
    }

    /// Draws bars, for rare events.
    pub fn bars(self) -> Self {
        self.field("custom.drawStyle", "bars")
            .field("custom.stacking.mode", "normal")
            .field("custom.fillOpacity", 80)
            .field("custom.lineWidth", 0)
            .field("decimals", 0)
            .field("min", 0)
            // Wide enough that a bar covers minutes and not one scrape.
            .set("maxDataPoints", 60)
    }

    /// Draws steps, for values that change abruptly.
    pub fn steps(self) -> Self {
        self.field("custom.lineInterpolation", "stepAfter")
    }

    /// Columns of a table, in this order, as (field name, displayed name). Others are hidden.
    pub fn columns(self, columns: &[(&str, &str)]) -> Self {
        let order = columns.iter().enumerate();
        let order: Map<String, Value> =
            order.map(|(place, (field, _))| ((*field).to_owned(), json!(place))).collect();
        let names = columns.iter().filter(|(field, shown)| field != shown);
        let names: Map<String, Value> =
            names.map(|(field, shown)| ((*field).to_owned(), json!(shown))).collect();
        let include = json!({"names": columns.iter().map(|(field, _)| field).collect::<Vec<_>>()});
        self.set(
            "transformations",
            json!([
                {"id": "merge", "options": {}},
                {"id": "filterFieldsByName", "options": {"include": include}},
                {"id": "organize", "options": {
                    "excludeByName": {}, "indexByName": order, "renameByName": names,
                }},
            ]),
        )
    }

    /// Sorts a table by this column.
    pub fn sorted_by(self, column: &str, falling: bool) -> Self {
        self.set("options.sortBy", json!([{"desc": falling, "displayName": column}]))
    }

    /// The panel's JSON at its position.
    pub fn json(&self, id: u64, place: &Value, interval: &str) -> Value {
        let mut json = self.json.clone();
        let is_table = json["type"] == "table";
        let targets = self.targets.iter().zip('A'..='Z').map(|(target, letter)| {
            let mut query = json!({
                "datasource": datasource(),
                "editorMode": "code",
                "expr": target.expression,
                "format": if is_table { "table" } else { "time_series" },
                "instant": target.shape == Shape::Now,
                "interval": interval,
                "range": target.shape == Shape::Range,
                "refId": letter.to_string(),
            });
            if !target.legend.is_empty() {
                query["legendFormat"] = json!(target.legend);
            }
            query
        });
        json["targets"] = targets.collect();
        json["fieldConfig"]["overrides"] = json!(self.overrides);
        json["gridPos"] = place.clone();
        json["id"] = json!(id);
        json
    }
}

/// The data source variable of all boards.
pub(super) fn datasource() -> Value {
    json!({"type": "prometheus", "uid": "${datasource}"})
}

/// Sets the value at a path with dots between its parts, and creates missing parents.
fn put(into: &mut Value, path: &str, value: Value) {
    let place = path.split('.').fold(into, |place, part| &mut place[part]);
    *place = value;
}
