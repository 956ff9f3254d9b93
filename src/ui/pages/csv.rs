//! Lists as CSV.

use std::fmt::Display;

/// CSV under construction: RFC 4180, with lines that end in CRLF.
#[derive(Debug)]
pub(super) struct Csv {
    text: String,
    is_start_of_line: bool,
}

impl Csv {
    /// A table with these headings.
    pub fn new(headings: &[&str]) -> Self {
        let mut csv = Self { text: String::new(), is_start_of_line: true };
        for heading in headings {
            csv.cell(heading);
        }
        csv.end_row();
        csv
    }

    /// Adds a cell. Texts that spreadsheets would take for formulas get an apostrophe.
    pub fn cell(&mut self, value: impl Display) -> &mut Self {
        if !self.is_start_of_line {
            self.text.push(',');
        }
        self.is_start_of_line = false;
        let value = value.to_string();
        let is_number = value.parse::<f64>().is_ok();
        let is_formula = !is_number && value.starts_with(['=', '+', '-', '@', '\t', '\r']);
        if is_formula || value.contains([',', '"', '\n', '\r']) {
            self.text.push('"');
            if is_formula {
                self.text.push('\'');
            }
            self.text.push_str(&value.replace('"', "\"\""));
            self.text.push('"');
        } else {
            self.text.push_str(&value);
        }
        self
    }

    /// Adds a cell that is empty if there is no value.
    pub fn optional(&mut self, value: Option<impl Display>) -> &mut Self {
        match value {
            Some(value) => self.cell(value),
            None => self.cell(""),
        }
    }

    pub fn end_row(&mut self) {
        self.text.push_str("\r\n");
        self.is_start_of_line = true;
    }

    /// The whole text.
    pub fn finish(self) -> String {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_and_formulas_are_texts() {
        let mut csv = Csv::new(&["a", "b"]);
        csv.cell("x, \"y\"").cell("=1+1").end_row();
        csv.cell(-5).optional(None::<i64>).end_row();
        assert_eq!(csv.finish(), "a,b\r\n\"x, \"\"y\"\"\",\"'=1+1\"\r\n-5,\r\n");
    }
}
