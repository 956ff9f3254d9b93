//! HTML under construction: only literals are markup, everything else is escaped.

use std::fmt::{self, Display, Write as _};

use plimsoll_charts::{request_bar::RequestBar, svg::Svg};

/// HTML under construction.
#[derive(Debug, Default)]
pub(crate) struct Markup {
    html: String,
}

/// Escapes what is written into it.
struct Escaping<'a>(&'a mut String);

impl Markup {
    /// Writes markup.
    pub fn raw(&mut self, markup: &'static str) {
        self.html.push_str(markup);
    }

    /// Writes text.
    pub fn text(&mut self, text: impl Display) {
        // Writing to a String cannot fail.
        let _ = write!(Escaping(&mut self.html), "{text}");
    }

    /// Writes an attribute, with a space before it.
    pub fn attribute(&mut self, name: &'static str, value: impl Display) {
        self.raw(" ");
        self.raw(name);
        self.raw("=\"");
        self.text(value);
        self.raw("\"");
    }

    /// Writes an element without attributes that contains text.
    pub fn element(&mut self, tag: &'static str, text: impl Display) {
        self.raw("<");
        self.raw(tag);
        self.raw(">");
        self.text(text);
        self.raw("</");
        self.raw(tag);
        self.raw(">");
    }

    /// Draws a bar.
    pub fn bar(&mut self, bar: &RequestBar<'_>) {
        self.html.push_str(&bar.draw());
    }

    /// Writes a chart.
    pub fn chart(&mut self, chart: Svg) {
        self.html.push_str(&chart.finish());
    }

    /// Writes data as a script element that is not run.
    pub fn data(&mut self, id: &'static str, json: &str) {
        self.raw("<script type=\"application/json\"");
        self.attribute("id", id);
        self.raw(">");
        // Nothing in it ends the element: in JSON, this letter is only within texts.
        self.html.push_str(&json.replace('<', "\\u003c"));
        self.raw("</script>\n");
    }

    /// The document.
    pub fn finish(self) -> String {
        self.html
    }
}

impl fmt::Write for Escaping<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for letter in text.chars() {
            match letter {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                letter if letter.is_control() || changes_direction(letter) => {
                    self.0.push('\u{fffd}');
                }
                letter => self.0.push(letter),
            }
        }
        Ok(())
    }
}

/// Whether a character reverses the text after it, so that a name looks like another.
fn changes_direction(letter: char) -> bool {
    matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_cannot_end_its_element() {
        let mut markup = Markup::default();
        markup.data("data", "{\"a\":\"</script><script>\"}");
        assert_eq!(
            markup.finish(),
            "<script type=\"application/json\" id=\"data\">{\"a\":\"\\u003c/script>\\u003cscript>\"}</script>\n"
        );
    }

    #[test]
    fn texts_and_attributes_are_escaped() {
        let mut markup = Markup::default();
        markup.raw("<p");
        markup.attribute("title", "\"' onload='x'");
        markup.raw(">");
        markup.text("</p><script>a && b\u{202e}\n");
        markup.raw("</p>");
        assert_eq!(
            markup.finish(),
            "<p title=\"&quot;&#39; onload=&#39;x&#39;\">&lt;/p&gt;&lt;script&gt;a &amp;&amp; b\u{fffd}\u{fffd}</p>"
        );
    }
}
