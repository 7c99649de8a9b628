//! `backup` and `restore`: a whole site as one file.

use super::connect::Connect;
use super::failed::Failed;
use super::show;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use model::{NodeId, SiteName};
use server::config::is_host_and_port;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Save a running site to one file, as of one moment, while it goes on serving
#[derive(Args)]
#[command(
    after_help = "Example:\n  portolan backup pier-39.backup && portolan restore pier-39.backup --data new"
)]
pub(crate) struct Backup {
    /// The file to write; it must not exist
    file: PathBuf,
    /// No progress bar
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    connect: Connect,
}

impl Backup {
    pub(crate) fn run(self) -> Result<(), Failed> {
        let name = self.file;
        let at = |error: std::io::Error| {
            Failed::cannot_serve(format!("cannot write {}: {error}", name.display()))
        };
        if name.exists() {
            return Err(Failed::usage(format!("{} exists; choose another name", name.display())));
        }
        self.connect.run(async |client| {
            let mut backup = client.cluster().backup().await?;
            let mut file = Unfinished::create(with_ending(&name, "part")).map_err(at)?;
            let progress = bar(self.quiet);
            let (mut written, mut total) = (0, 0);
            while let Some((bytes, total_bytes)) = backup.next().await? {
                total = total_bytes;
                progress.set_length(total);
                file.file.write_all(&bytes).map_err(at)?;
                written += bytes.len() as u64;
                progress.set_position(written);
            }
            if written == 0 || written != total {
                let what = format!("the backup ended after {written} of {total} bytes; try again");
                return Err(Failed::cannot_serve(what));
            }
            file.finish(&name).map_err(at)?;
            progress.finish_and_clear();
            Ok(show::print(format_args!("{written} bytes in {}", name.display()))?)
        })
    }
}

/// A file that only gets its name when it is whole; until then it is removed when dropped.
struct Unfinished {
    file: File,
    path: PathBuf,
    finished: bool,
}

impl Unfinished {
    fn create(path: PathBuf) -> std::io::Result<Unfinished> {
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(&path)?;
        Ok(Unfinished { file, path, finished: false })
    }

    /// Makes it durable under its name.
    fn finish(mut self, name: &Path) -> std::io::Result<()> {
        self.file.sync_all()?;
        std::fs::rename(&self.path, name)?;
        self.finished = true;
        let folder = name.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.finished {
            // What remains is found by its ending.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{ending}"));
    name.into()
}

fn bar(quiet: bool) -> ProgressBar {
    if quiet {
        return ProgressBar::hidden();
    }
    let template = "{bar:40} {bytes}/{total_bytes}, {bytes_per_sec}, {eta} left";
    let style = ProgressStyle::with_template(template).expect("the template is right");
    ProgressBar::new(0).with_style(style)
}

/// Make the data directory of a new site of one node from a backup, checking every block
#[derive(Args)]
#[command(
    after_help = "The restored site has one node; start it with the same --site, --node and --data, and let more\n\
                  join it as any site:\n  portolan restore pier-39.backup --data new --site pier-39\n  \
                  portolan serve --data new --site pier-39"
)]
pub(crate) struct Restore {
    /// The backup
    file: PathBuf,
    /// The directory to make; it must be empty or absent
    #[arg(long, value_name = "DIR", env = "PORTOLAN_DATA", default_value = "portolan-data")]
    data: PathBuf,
    /// The name of the new site
    #[arg(long, value_name = "NAME", env = "PORTOLAN_SITE", default_value = "site")]
    site: String,
    /// The id of its node
    #[arg(long, value_name = "N", env = "PORTOLAN_NODE", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    node: u64,
    /// The peer port of its node, as others will reach it
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7381")]
    peer: String,
    /// No progress
    #[arg(long, short)]
    quiet: bool,
}

impl Restore {
    pub(crate) fn run(self) -> Result<(), Failed> {
        let site = SiteName::new(self.site).map_err(|e| Failed::usage(format!("--site: {e}")))?;
        if !is_host_and_port(&self.peer) {
            return Err(Failed::usage(format!("--peer: {:?} is not HOST:PORT", self.peer)));
        }
        let progress = match self.quiet {
            true => ProgressBar::hidden(),
            false => ProgressBar::new_spinner().with_message("checking and loading every block"),
        };
        progress.enable_steady_tick(Duration::from_millis(100));
        let node = NodeId(self.node);
        let restored = server::backup::restore(&self.file, &self.data, &site, node, &self.peer);
        progress.finish_and_clear();
        let restored = restored.map_err(Failed::cannot_serve)?;
        let (rows, data) = (restored.rows, self.data.display());
        show::print(format_args!("{rows} rows as of {} in {data}", restored.revision))?;
        if restored.confirms {
            show::print(format_args!(
                "The site belongs to a deployment: it serves no slot of a global keyspace until all other sites have\n\
                 stated which slots they own by now; `portolan job show confirm` names those that have not."
            ))?;
        }
        Ok(())
    }
}
