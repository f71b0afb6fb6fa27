//! The machine as a picture: GPUs above, ports below, a line for each rail a GPU starts with.

use super::groups::{Item, Node, Tree, nodes};
use shunt_host::discover::{Distance, Inventory};
use shunt_host::topology::{Topology, Why};
use std::fmt::Write;

const CELL: usize = 128;
const BOX: usize = 116;
const GAP: usize = 14;
const MARGIN: usize = 24;
const TITLE: usize = 64;
const GPU_Y: usize = TITLE + 56;
const GPU_HEIGHT: usize = 58;
const PORT_Y: usize = GPU_Y + GPU_HEIGHT + 190;
const PORT_HEIGHT: usize = 74;
const TREE_Y: usize = TITLE + 30;
const TREE_BOTTOM: usize = PORT_Y + PORT_HEIGHT + 34;
const NODE_BOTTOM: usize = TREE_BOTTOM + 14;
/// One colour a GPU; eight that stay apart for eyes that do not tell red from green.
const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#6a3d9a", "#5d4037"];
const WIDE: usize = 150;

/// Where everything lies.
#[derive(Default)]
struct Layout {
    gpus: Vec<Option<usize>>,
    rails: Vec<Option<usize>>,
    asides: Vec<Option<usize>>,
    /// Left edge and width of each tree, by node.
    trees: Vec<Vec<(usize, usize)>>,
    width: usize,
}

fn lay_out(nodes: &[Node], topology: &Topology) -> Layout {
    let mut layout = Layout {
        gpus: vec![None; topology.gpus.len()],
        rails: vec![None; topology.rails.len()],
        asides: vec![None; topology.set_aside.len()],
        ..Layout::default()
    };
    let mut x = MARGIN;
    for node in nodes {
        x += GAP;
        let mut trees = Vec::new();
        for tree in &node.trees {
            let gpus = tree.items.iter().filter(|item| matches!(item, Item::Gpu(_))).count();
            let columns = gpus.max(tree.items.len() - gpus).max(1);
            let width = columns * CELL + GAP - (CELL - BOX) + GAP;
            place(&mut layout, tree, x + GAP, columns, gpus);
            trees.push((x, width));
            x += width + GAP;
        }
        layout.trees.push(trees);
        x += GAP;
    }
    layout.width = (x + MARGIN).max(760);
    layout
}

/// Puts the boxes of a tree side by side, each row in the middle.
fn place(layout: &mut Layout, tree: &Tree, left: usize, columns: usize, gpus: usize) {
    let indent = |count: usize| left + (columns - count) * CELL / 2;
    let (mut gpu_x, mut port_x) = (indent(gpus), indent(tree.items.len() - gpus));
    for item in &tree.items {
        let (slot, x) = match item {
            Item::Gpu(i) => (&mut layout.gpus[*i], &mut gpu_x),
            Item::Rail(i) => (&mut layout.rails[*i], &mut port_x),
            Item::Aside(i) => (&mut layout.asides[*i], &mut port_x),
        };
        *slot = Some(*x);
        *x += CELL;
    }
}

/// Draws.
pub fn draw(inventory: &Inventory, topology: &Topology) -> String {
    let nodes = nodes(inventory, topology);
    let layout = lay_out(&nodes, topology);
    let notes = notes(topology, (layout.width - 2 * MARGIN) / 7);
    let legend = NODE_BOTTOM + 36;
    let height = legend + 30 + notes.len() * 20 + MARGIN;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {height}\" width=\"{0}\" height=\"{height}\" \
         font-family=\"Helvetica, Arial, sans-serif\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
        layout.width
    );
    text(&mut out, (MARGIN, 38), "font-size=\"22\" font-weight=\"bold\" fill=\"#222\"", "Rails of each GPU");
    for (node, trees) in nodes.iter().zip(&layout.trees) {
        node_box(&mut out, node, trees);
    }
    lines(&mut out, topology, &layout);
    for (i, x) in layout.gpus.iter().enumerate() {
        if let Some(x) = x {
            gpu_box(&mut out, inventory, i, *x);
        }
    }
    ports(&mut out, inventory, topology, &layout);
    key(&mut out, legend, topology.backups);
    for (i, note) in notes.iter().enumerate() {
        text(&mut out, (MARGIN, legend + 36 + i * 20), "font-size=\"13\" fill=\"#444\"", note);
    }
    out + "</svg>\n"
}

fn node_box(out: &mut String, node: &Node, trees: &[(usize, usize)]) {
    let (Some(first), Some(last)) = (trees.first(), trees.last()) else { return };
    let (x, right) = (first.0 - GAP, last.0 + last.1 + GAP);
    frame(out, (x, TITLE), (right - x, NODE_BOTTOM - TITLE), "fill=\"#f6f7f9\" stroke=\"#c9ced6\"");
    let numa = node.numa.map_or("NUMA node not known".into(), |numa| format!("NUMA node {numa}"));
    text(out, (x + 12, TITLE + 21), "font-size=\"14\" font-weight=\"bold\" fill=\"#555\"", &numa);
    for (tree, (x, width)) in node.trees.iter().zip(trees) {
        frame(out, (*x, TREE_Y), (*width, TREE_BOTTOM - TREE_Y), "fill=\"#ffffff\" stroke=\"#d9dde3\"");
        // A narrow box holds the address alone.
        let label = if *width < 200 { tree.label.replace("PCIe ", "") } else { tree.label.clone() };
        let at = (x + width / 2, TREE_BOTTOM - 11);
        text(out, at, "font-size=\"11\" fill=\"#888\" text-anchor=\"middle\"", &label);
    }
}

/// Rails a GPU starts with; the primary last, on top of the others.
fn lines(out: &mut String, topology: &Topology, layout: &Layout) {
    for rank in (0..=topology.backups as usize).rev() {
        for gpu in &topology.gpus {
            let Some(ranked) = gpu.rails.get(rank).filter(|ranked| ranked.why != Why::Unusable) else {
                continue;
            };
            let (Some(from), Some(to)) = (layout.gpus[gpu.gpu], layout.rails[ranked.rail]) else { continue };
            let style = match rank {
                0 => "stroke-width=\"5\"",
                1 => "stroke-width=\"2.2\" stroke-dasharray=\"8 5\" opacity=\"0.9\"",
                _ => "stroke-width=\"1.5\" stroke-dasharray=\"2 5\" opacity=\"0.8\"",
            };
            // Ends of several lines lie side by side on a box.
            let spread = |x: usize, at: usize| x + BOX / 2 + 12 * (at % 4) - 18;
            let (x1, x2) = (spread(from, rank), spread(to, rank + gpu.gpu));
            let (x1, x2) = if rank == 0 { (from + BOX / 2, to + BOX / 2) } else { (x1, x2) };
            let (y1, y2) = (GPU_Y + GPU_HEIGHT, PORT_Y);
            let bend = 60 + 22 * rank;
            let colour = COLOURS[gpu.gpu % COLOURS.len()];
            let _ = writeln!(
                out,
                "<path d=\"M{x1} {y1} C{x1} {} {x2} {} {x2} {y2}\" fill=\"none\" stroke=\"{colour}\" {style} \
                 stroke-linecap=\"round\"/>",
                y1 + bend,
                y2 - bend
            );
            if rank == 0 && ranked.distance > Distance::Pix {
                distance_tag(out, ((x1 + x2) / 2, (y1 + y2) / 2), colour, ranked.distance);
            }
        }
    }
}

/// Says that a primary is farther than its own switch.
fn distance_tag(out: &mut String, (x, y): (usize, usize), colour: &str, distance: Distance) {
    frame(out, (x - 22, y - 10), (44, 20), &format!("fill=\"#ffffff\" stroke=\"{colour}\""));
    let style = format!("font-size=\"11\" font-weight=\"bold\" fill=\"{colour}\" text-anchor=\"middle\"");
    text(out, (x, y + 4), &style, &distance.to_string());
}

fn gpu_box(out: &mut String, inventory: &Inventory, gpu: usize, x: usize) {
    let colour = COLOURS[gpu % COLOURS.len()];
    frame(out, (x, GPU_Y), (BOX, GPU_HEIGHT), &format!("fill=\"{colour}\" stroke=\"{colour}\""));
    let middle = x + BOX / 2;
    let white = "fill=\"#ffffff\" text-anchor=\"middle\"";
    text(
        out,
        (middle, GPU_Y + 25),
        &format!("font-size=\"17\" font-weight=\"bold\" {white}"),
        &format!("GPU {gpu}"),
    );
    let address = inventory.gpus[gpu].address.to_string();
    text(out, (middle, GPU_Y + 45), &format!("font-size=\"12\" {white}"), &address);
}

fn ports(out: &mut String, inventory: &Inventory, topology: &Topology, layout: &Layout) {
    // Ports of one card are joined by a bar below them.
    let mut cards: Vec<usize> = topology.rails.iter().map(|rail| rail.card).collect();
    cards.sort_unstable();
    cards.dedup();
    for card in cards {
        let rails = topology.rails.iter().enumerate().filter(|(_, rail)| rail.card == card);
        let places: Vec<usize> = rails.filter_map(|(i, _)| layout.rails[i]).collect();
        if let (Some(first), Some(last)) = (places.iter().min(), places.iter().max())
            && first != last
        {
            let at = (first.saturating_sub(5), PORT_Y - 5);
            frame(
                out,
                at,
                (last + BOX + 10 - first, PORT_HEIGHT + 10),
                "fill=\"#e8ecf2\" stroke=\"#9aa4b2\"",
            );
        }
    }
    for (rail, x) in topology.rails.iter().zip(&layout.rails) {
        let Some(x) = x else { continue };
        let rate = rail.rate.as_ref().map_or("? Gb/s".into(), |rate| rate.to_string());
        let (edge, state) = match rail.trouble {
            None => ("#2e7d32", rail.state.to_string()),
            Some(_) => ("#c62828", format!("{} - unusable", rail.state)),
        };
        let address = inventory.rdma[rail.device].address().map_or(String::new(), |at| at.to_string());
        let lines = [rail.name.clone(), format!("{rate} {}", rail.link), state, address];
        port_box(out, *x, edge, "fill=\"#ffffff\" stroke-width=\"2\"", &lines);
    }
    for (aside, x) in topology.set_aside.iter().zip(&layout.asides) {
        let Some(x) = x else { continue };
        let (edge, what) = if aside.refused { ("#c62828", "refused") } else { ("#aaaaaa", "not used") };
        let lines = [aside.name.clone(), String::new(), what.to_owned(), String::new()];
        port_box(out, *x, edge, "fill=\"#f3f3f3\" stroke-dasharray=\"4 3\"", &lines);
    }
}

fn port_box(out: &mut String, x: usize, edge: &str, style: &str, lines: &[String; 4]) {
    frame(out, (x, PORT_Y), (BOX, PORT_HEIGHT), &format!("{style} stroke=\"{edge}\""));
    let styles = [
        format!(
            "font-size=\"{}\" font-weight=\"bold\" fill=\"#222\"",
            if lines[0].len() > 11 { 12 } else { 14 }
        ),
        "font-size=\"11\" fill=\"#444\"".to_owned(),
        format!("font-size=\"11\" font-weight=\"bold\" fill=\"{edge}\""),
        "font-size=\"10\" fill=\"#888\"".to_owned(),
    ];
    for (i, (line, style)) in lines.iter().zip(styles).enumerate() {
        let at = (x + BOX / 2, PORT_Y + 19 + i * 16);
        text(out, at, &format!("{style} text-anchor=\"middle\""), line);
    }
}

fn key(out: &mut String, y: usize, backups: u32) {
    let entries = [
        (0, "primary", "stroke-width=\"5\""),
        (1, "first backup", "stroke-width=\"2.2\" stroke-dasharray=\"8 5\""),
        (2, "further backups", "stroke-width=\"1.5\" stroke-dasharray=\"2 5\""),
    ];
    for (i, name, style) in entries.into_iter().filter(|(i, ..)| *i <= backups as usize) {
        let x = MARGIN + i * WIDE;
        let _ = writeln!(
            out,
            "<line x1=\"{x}\" y1=\"{y}\" x2=\"{}\" y2=\"{y}\" stroke=\"#555\" {style} stroke-linecap=\"round\"/>",
            x + 34
        );
        text(out, (x + 42, y + 5), "font-size=\"13\" fill=\"#444\"", name);
    }
}

/// All notes, as lines of at most `width` characters; each GPU's in one, if they are the same.
fn notes(topology: &Topology, width: usize) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for gpu in &topology.gpus {
        all.extend(gpu.notes.iter().map(|note| format!("GPU {}: {note}", gpu.gpu)));
    }
    let unusable = topology.rails.iter().filter_map(|rail| Some((rail, rail.trouble.as_ref()?)));
    let said = all.join("\n");
    let unusable = unusable.filter(|(rail, _)| !said.contains(&format!("port {} cannot", rail.name)));
    all.extend(unusable.map(|(rail, trouble)| format!("{}: {trouble}", rail.name)));
    all.extend(topology.notes.iter().cloned());
    all.extend(
        topology
            .set_aside
            .iter()
            .filter(|port| port.refused)
            .map(|port| format!("{}: {}", port.name, port.why)),
    );
    all.iter().flat_map(|note| broken(note, width)).collect()
}

fn broken(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("never empty");
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(format!("    {word}"));
        } else {
            line.push_str(if line.is_empty() { "" } else { " " });
            line.push_str(word);
        }
    }
    lines
}

fn frame(out: &mut String, (x, y): (usize, usize), (width, height): (usize, usize), style: &str) {
    let _ =
        writeln!(out, "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"8\" {style}/>");
}

fn text(out: &mut String, (x, y): (usize, usize), style: &str, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(out, "<text x=\"{x}\" y=\"{y}\" {style} xml:space=\"preserve\">{words}</text>");
}
