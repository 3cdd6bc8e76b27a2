//! HTML of a report: sections, tables, verdicts and escaping.
//!
//! The crate `maud` is not used, because it leaves void elements such as `<meta>` open and control
//! characters as they are, and a page must be valid XML too, because tests parse it as XML.

use super::{Block, Cell, Report, Section, Table, bars, lines, number, style};
use crate::statistics::Verdict;

/// Text with HTML's special characters escaped, line ends and tabs replaced by blanks, and other
/// control characters replaced by U+FFFD.
pub(super) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\n' | '\t' => safe.push(' '),
            letter if letter.is_control() => safe.push('\u{fffd}'),
            letter => safe.push(letter),
        }
    }
    safe
}

/// Beginning of every page, which identifies a page of weft.
pub const BEGIN: &str = "<!DOCTYPE html>\n<!-- A report of weft -->\n";

/// HTML of the whole page of a report.
pub(super) fn page(report: &Report) -> String {
    let title = escaped(&report.title);
    let mut page = format!(
        "{BEGIN}<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <title>{title}</title>\n<style>{}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n",
        style::SHEET
    );
    if !report.summary.is_empty() {
        page += &format!("<p class=\"summary\">{}</p>\n", escaped(&report.summary));
    }
    if !report.facts.is_empty() {
        page.push_str("<dl class=\"facts\">\n");
        for (name, fact) in &report.facts {
            let (name, fact) = (escaped(name), escaped(fact));
            page += &format!("<dt>{name}</dt><dd>{fact}</dd>\n");
        }
        page.push_str("</dl>\n");
    }
    let mut chart = 0;
    for section in &report.sections {
        page.push_str(&written(section, &mut chart));
    }
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

fn written(section: &Section, chart: &mut u32) -> String {
    let mut html = format!("<section>\n<h2>{}</h2>\n", escaped(&section.title));
    for block in &section.blocks {
        match block {
            Block::Code(text) => {
                let lines: Vec<String> = text.lines().map(escaped).collect();
                html += &format!("<pre>{}</pre>\n", lines.join("\n"));
            }
            Block::Text(text) => html += &format!("<p>{}</p>\n", escaped(text)),
            Block::List(points) => {
                let points = points.iter().map(|point| format!("<li>{}</li>", escaped(point)));
                html += &format!("<ul>{}</ul>\n", points.collect::<String>());
            }
            Block::Table(table) => html.push_str(&self::table(table)),
            Block::Bars(chart_bars) => {
                *chart += 1;
                html.push_str(&bars::figure(chart_bars, *chart));
            }
            Block::Lines(chart_lines) => {
                *chart += 1;
                html.push_str(&lines::figure(chart_lines, *chart));
            }
        }
    }
    html.push_str("</section>\n");
    html
}

/// HTML of a figure around the drawing of a chart: title, description, legend, drawing, numbers.
pub(super) fn figure(
    title: &str,
    description: &str,
    legend: &str,
    drawing: &str,
    numbers: &Table,
) -> String {
    let described = if description.is_empty() {
        String::new()
    } else {
        format!("<p class=\"description\">{}</p>\n", escaped(description))
    };
    format!(
        "<figure>\n<figcaption>{}</figcaption>\n{described}{legend}{drawing}\
         <details><summary>Numbers</summary>{}</details>\n</figure>\n",
        escaped(title),
        table(numbers)
    )
}

/// Opening tag of a drawing with this height in pixels, with its title and description. `number` is
/// the number of the chart on the page, which makes the tag's ids unique.
pub(super) fn drawing(number: u32, height: f64, title: &str, description: &str) -> String {
    format!(
        "<svg width=\"100%\" height=\"{height:.0}\" role=\"img\" aria-labelledby=\"t{number} d{number}\">\
         <title id=\"t{number}\">{}</title><desc id=\"d{number}\">{}</desc>\n",
        escaped(title),
        escaped(if description.is_empty() { title } else { description })
    )
}

/// HTML of a table, which may be wider than the page.
pub(super) fn table(table: &Table) -> String {
    // On a narrow page a row of many cells becomes a card; each cell has its heading.
    let cards = if table.columns.len() > CELLS_ABREAST { " class=\"cards\"" } else { "" };
    let mut html = format!("<div class=\"wide\"><table{cards}>");
    if !table.caption.is_empty() {
        html += &format!("<caption>{}</caption>", escaped(&table.caption));
    }
    let numeric = |at: usize| {
        let mut cells = table.rows.iter().filter_map(|row| row.get(at));
        cells.any(|cell| matches!(cell, Cell::Number(_) | Cell::Value(_)))
    };
    html.push_str("<thead><tr>");
    for (at, column) in table.columns.iter().enumerate() {
        let class = if numeric(at) { " class=\"n\"" } else { "" };
        html += &format!("<th scope=\"col\"{class}>{}</th>", escaped(column));
    }
    html.push_str("</tr></thead>\n<tbody>");
    for row in &table.rows {
        html.push_str("<tr>");
        for (at, cell) in row.iter().enumerate() {
            let label = match table.columns.get(at) {
                Some(column) if !cards.is_empty() && !column.is_empty() => {
                    format!(" data-label=\"{}\"", escaped(column))
                }
                _ => String::new(),
            };
            match cell {
                Cell::Number(text) => {
                    html += &format!("<td class=\"n\"{label}>{}</td>", escaped(text));
                }
                Cell::Noted(text, note) => {
                    let (text, note) = (escaped(text), beneath(&escaped(note)));
                    html += &format!("<td{label}>{text}{note}</td>");
                }
                Cell::Value(value) => {
                    let text = number(value.map_or(f64::NAN, |value| value.value));
                    let interval = value.and_then(|value| value.interval);
                    let ends =
                        interval.map(|(low, high)| format!("[{}, {}]", number(low), number(high)));
                    let ends = beneath(&ends.unwrap_or_default());
                    html += &format!("<td class=\"n\"{label}><span>{text}{ends}</span></td>");
                }
                Cell::Text(text) => {
                    html += &format!("<td{label}>{}</td>", escaped(text));
                }
                Cell::Verdict(verdict) => {
                    let (word, sign) = (verdict.word(), sign(*verdict));
                    html += &format!(
                        "<td{label}><span class=\"verdict {word}\">\
                             <span aria-hidden=\"true\">{sign}</span> {word}</span></td>"
                    );
                }
            }
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody></table></div>\n");
    html
}

/// HTML of a note that is shown beneath the text of a cell; empty if the note is.
fn beneath(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(" <small>{text}</small>") }
}

/// Largest number of cells that a phone shows side by side.
const CELLS_ABREAST: usize = 3;

fn sign(verdict: Verdict) -> char {
    match verdict {
        Verdict::Agrees => '✓',
        Verdict::AgreesOtherwise => '≈',
        Verdict::Differs => '✗',
        Verdict::Direction => '↗',
        Verdict::Undecided => '?',
    }
}
