//! The figures, as a table and as JSON.

use std::io;

use serde::Serialize;
use serde_json::json;

use super::ceiling::Posted;
use super::load::Sent;
use super::plan::Scenario;
use super::receiver::{Latency, Report as Arrived};
use super::system::Usage;
use postrider_cli::exit::Failure;
use postrider_cli::output::{Output, line};
use postrider_cli::table::{Cell, Column, Table, wrapped};

/// Longer lines of text are hard to read.
const LEGEND_WIDTH: usize = 110;

/// The cost of a delivery.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct PerDelivery {
    /// Processor time of all nodes together, in microseconds.
    pub(crate) server_us: f64,
    pub(crate) load_us: f64,
    pub(crate) receiver_us: f64,
    /// Processor time of the PostgreSQL server, if it is on this machine.
    pub(crate) postgres_us: Option<f64>,
    /// Bytes written to the disk that holds the data, if the system reports them.
    pub(crate) written_bytes: Option<f64>,
}

/// The results of a scenario.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Measured {
    pub(crate) scenario: Scenario,
    /// The scheduled events per second, if there was a rate.
    pub(crate) rate: Option<f64>,
    /// Events per second, from the first one sent to the last delivery that arrived.
    pub(crate) events_per_second: f64,
    /// Deliveries per second in the same time.
    pub(crate) deliveries_per_second: f64,
    /// POSTs per second of the bare client, before and after.
    pub(crate) ceiling_per_second: f64,
    /// Our rate divided by the ceiling.
    pub(crate) ratio: f64,
    /// From the scheduled time of a request to its answer, in microseconds.
    pub(crate) accepted: Latency,
    /// From the scheduled time of an event to its arrival, in microseconds.
    pub(crate) arrived: Latency,
    pub(crate) deliveries: u64,
    pub(crate) lost: u64,
    pub(crate) repeated: u64,
    pub(crate) per_delivery: PerDelivery,
    /// Processor time of the bare client per POST, in microseconds.
    pub(crate) ceiling_us: f64,
    /// The peak memory of a server.
    pub(crate) peak_bytes: u64,
}

impl Measured {
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    pub(crate) fn new(
        scenario: &Scenario,
        rate: Option<f64>,
        sent: &Sent,
        arrived: &Arrived,
        ceiling: Posted,
        per_delivery: PerDelivery,
        usage: Usage,
    ) -> Measured {
        let seconds = arrived.last_us.saturating_sub(sent.first_us).max(1) as f64 / 1e6;
        let deliveries_per_second = arrived.arrived as f64 / seconds;
        let ceiling_per_second = ceiling.posts as f64 / ceiling.seconds.max(1e-9);
        Measured {
            scenario: scenario.clone(),
            rate,
            events_per_second: sent.events as f64 / seconds,
            deliveries_per_second,
            ceiling_per_second,
            ratio: deliveries_per_second / ceiling_per_second.max(1e-9),
            accepted: sent.accepted,
            arrived: arrived.latency,
            deliveries: arrived.arrived,
            lost: arrived.lost,
            repeated: arrived.repeated,
            per_delivery,
            ceiling_us: ceiling.cpu_us as f64 / ceiling.posts.max(1) as f64,
            peak_bytes: usage.peak_bytes,
        }
    }

    /// In the order of the table's columns.
    fn cells(&self) -> Vec<Cell> {
        let per = &self.per_delivery;
        let mut cpu = format!("{:.1}+{:.1}+{:.1}", per.server_us, per.load_us, per.receiver_us);
        if let Some(postgres) = per.postgres_us {
            cpu.push_str(&format!("+{postgres:.1}"));
        }
        #[expect(clippy::cast_precision_loss, reason = "figures for people")]
        let (peak, [p50, p90, p99, max]) = (
            self.peak_bytes as f64 / 1e6,
            [self.arrived.p50, self.arrived.p90, self.arrived.p99, self.arrived.max]
                .map(|us| format!("{:.2}", us as f64 / 1e3)),
        );
        let written = per.written_bytes.map(|bytes| format!("{:.1}", bytes / 1e3));
        let cells = [
            self.scenario.name.clone(),
            format!("{:.0}", self.deliveries_per_second),
            format!("{:.0} %", self.ratio * 100.0),
            p50,
            p99,
            format!("{} / {}", self.lost, self.repeated),
            cpu,
            format!("{peak:.0}"),
            max,
            format!("{:.0}", self.ceiling_per_second),
            written.unwrap_or_else(|| "-".to_owned()),
            p90,
            format!("{:.1}", self.ceiling_us),
        ];
        cells.into_iter().map(Cell::from).collect()
    }
}

/// All results so far.
pub(crate) struct Report {
    nodes: u64,
    with_postgres: bool,
    all: Vec<Measured>,
}

impl Report {
    pub(crate) fn new(nodes: u64, with_postgres: bool) -> Report {
        Report { nodes, with_postgres, all: Vec::new() }
    }

    /// Adds a scenario, and prints it.
    pub(crate) fn add(&mut self, measured: Measured, output: Output) -> io::Result<()> {
        if !output.json {
            let name = &measured.scenario.name;
            line(&format!(
                "{name}: {:.0} deliveries/s, {} delivered, {} lost",
                measured.deliveries_per_second, measured.deliveries, measured.lost
            ))?;
        }
        self.all.push(measured);
        Ok(())
    }

    pub(crate) fn finish(&self, output: Output) -> Result<(), Failure> {
        output.value(&json!({ "nodes": self.nodes, "scenarios": self.all }), |_| {
            self.table(output)
        })?;
        Ok(())
    }

    /// As wide as the terminal at most: what there is no room for is in the JSON.
    fn table(&self, output: Output) -> String {
        let number = |head| Column::new(head).right();
        let mut table = Table::new(&[
            Column::new("SCENARIO").cut(16),
            number("PER S"),
            number("RATIO"),
            number("P50"),
            number("P99"),
            number("LOST/TWICE"),
            number("CPU").optional(),
            number("MB").optional(),
            number("MAX").optional(),
            number("CEILING").optional(),
            number("KB").optional(),
            number("P90").optional(),
            number("BARE").optional(),
        ]);
        self.all.iter().for_each(|one| table.row(one.cells()));
        let postgres = if self.with_postgres { " + PostgreSQL" } else { "" };
        let servers = match self.nodes {
            1 => "server".to_owned(),
            nodes => format!("{nodes} nodes"),
        };
        let legend = format!(
            "PER S: deliveries. CEILING: POSTs of a bare pooled hyper client; RATIO: of it. P50 to MAX: ms from \
             when an event was meant to be sent until it arrived; under unlimited load that is the queue. CPU: \
             µs per delivery, {servers} + load generator + receiver{postgres}; BARE: of the bare client. KB: \
             written to the disk. MB: the most memory of a server. A wider terminal has more columns, and --json \
             has all figures."
        );
        let legend = wrapped(&legend, output.width().min(LEGEND_WIDTH)).join("\n");
        format!("\n{}\n\n{legend}", table.shown(output))
    }
}
