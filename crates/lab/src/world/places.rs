//! Where the sites of a world stand: listed, on a grid, or read from a CSV file.

use std::path::{Path, PathBuf};

use model::limits::NODES_MAX;

use super::check::site_name;
use super::file::{GridFile, SiteFile, SitesFromFile, WorldFile, Wrong};
use super::tier::{Matrix, MatrixFile, MatrixUnit};
use super::{SITES_MAX, Site};
use crate::geo::Point;
use crate::link::DELAY_MAX_MS;
use crate::random::Random;

/// Most rows and columns of a matrix.
const MATRIX_MAX: usize = 10_000;

/// The folders in which the files that a world names are looked for.
pub(super) struct Files {
    pub(super) folders: Vec<PathBuf>,
}

impl Files {
    pub(super) fn find(&self, file: &Path) -> Result<PathBuf, String> {
        let places = self.folders.iter().map(|folder| folder.join(file));
        places.into_iter().find(|path| path.is_file()).ok_or_else(|| {
            let folders: Vec<_> =
                self.folders.iter().map(|folder| folder.display().to_string()).collect();
            let looked = match folders.is_empty() {
                true => "nowhere: give its folder with --data".to_owned(),
                false => format!("in {}; --data gives another folder", folders.join(", ")),
            };
            format!("cannot find {} (looked {looked})", file.display())
        })
    }

    pub(super) fn matrix(&self, file: &MatrixFile) -> Result<Matrix, String> {
        let path = self.find(&file.csv)?;
        let name = path.display();
        let reader =
            csv::ReaderBuilder::new().has_headers(false).trim(csv::Trim::All).from_path(&path);
        let mut rows = Vec::new();
        for record in reader.map_err(|error| format!("{name}: {error}"))?.records() {
            let record = record.map_err(|error| format!("{name}: {error}"))?;
            let number = |text: &str| {
                let number: Option<f64> = text.parse().ok();
                number.filter(|ms| (0.0..=2.0 * DELAY_MAX_MS).contains(ms)).ok_or_else(|| {
                    format!("{name}: row {}: {text:?} is not a number of ms", rows.len() + 1)
                })
            };
            let half = match file.unit {
                MatrixUnit::RttMs => 0.5,
                MatrixUnit::OneWayMs => 1.0,
            };
            let row: Vec<f64> = record
                .iter()
                .map(|text| Ok(number(text)? * half))
                .collect::<Result<_, String>>()?;
            rows.push(row);
            if rows.len() > MATRIX_MAX {
                return Err(format!("{name}: more than {MATRIX_MAX} rows"));
            }
        }
        match rows.iter().all(|row| !row.is_empty()) && !rows.is_empty() {
            true => Ok(Matrix { rows }),
            false => Err(format!("{name}: a matrix has rows of numbers")),
        }
    }
}

/// All sites, and where they are from if that is worth a note.
pub(super) fn resolve(
    written: &WorldFile,
    files: &Files,
) -> Result<(Vec<Site>, Option<String>), Wrong> {
    let mut sites: Vec<Site> = Vec::new();
    for (index, site) in written.site.iter().enumerate() {
        let site = listed(site, &written.site[..index], &sites);
        sites.push(site.map_err(|wrong| wrong.of(index).under("site"))?);
    }
    if let Some(grid) = &written.grid {
        on_grid(grid, &mut sites).map_err(|wrong| wrong.under("grid"))?;
    }
    let mut note = None;
    if let Some(from) = &written.sites_from {
        note = from_csv(from, written, files, &mut sites)
            .map_err(|wrong| wrong.under("sites_from"))?;
    }
    if sites.is_empty() || sites.len() > SITES_MAX {
        let message = format!(
            "a world has 1 to {SITES_MAX} sites, from [[site]], [grid] and [sites_from]; is {}",
            sites.len()
        );
        return Err(Wrong::here(message));
    }
    Ok((sites, note))
}

fn check_nodes(name: &str, nodes: usize) -> Result<usize, Wrong> {
    if (1..=NODES_MAX).contains(&nodes) {
        return Ok(nodes);
    }
    let message = format!("site \"{name}\": nodes is 1 to {NODES_MAX}, is {nodes}");
    Err(Wrong::at("nodes", message))
}

fn listed(site: &SiteFile, earlier: &[SiteFile], sites: &[Site]) -> Result<Site, Wrong> {
    let name = site_name(&site.name).map_err(|why| Wrong::at("name", format!("site: {why}")))?;
    if earlier.iter().any(|other| other.name == site.name) {
        let message = format!("there is already a site named \"{name}\"");
        return Err(Wrong::at("name", message));
    }
    let at = Point::new(site.lat, site.lon);
    if !at.is_on_earth() {
        let message = format!("site \"{name}\": lat is −90 to 90 and lon −180 to 180");
        return Err(Wrong::at("lat", message));
    }
    let nodes = check_nodes(&site.name, site.nodes)?;
    if site.witness && nodes < 3 {
        let message = format!("site \"{name}\": a witness is the third of at least three nodes");
        return Err(Wrong::at("witness", message));
    }
    if site.spare && sites.is_empty() {
        let message = format!("site \"{name}\": the first site is there from the beginning");
        return Err(Wrong::at("spare", message));
    }
    if !(0.001..=1e6).contains(&site.capacity) {
        let message = format!("site \"{name}\": capacity is 0.001 to 1000000");
        return Err(Wrong::at("capacity", message));
    }
    let parent = site.parent.as_ref().map(|parent| {
        let found = sites.iter().position(|site| site.name.as_str() == parent);
        // Parents come first, so a tree has no cycles.
        let message = format!("site \"{name}\": its parent \"{parent}\" must be a site before it");
        found.ok_or_else(|| Wrong::at("parent", message))
    });
    let domain = site.failure_domain.as_deref().map(|domain| {
        site_name(domain).map_err(|why| Wrong::at("failure_domain", format!("site: {why}")))
    });
    let region = site.region.as_deref().map(|region| {
        model::SiteName::region(region).map_err(|why| Wrong::at("region", format!("site: {why}")))
    });
    Ok(Site {
        name,
        at,
        nodes,
        witness: site.witness,
        parent: parent.transpose()?,
        capacity: site.capacity,
        failure_domain: domain.transpose()?,
        region: region.transpose()?,
        borrowed_bytes_max: site.borrowed_bytes_max,
        spare: site.spare,
    })
}

fn plain(name: &str, at: Point, nodes: usize) -> Result<Site, Wrong> {
    let name = site_name(name).map_err(|why| Wrong::at("prefix", why))?;
    let (witness, parent, capacity, spare) = (false, None, 1.0, false);
    let (failure_domain, region, borrowed_bytes_max) = (None, None, None);
    Ok(Site {
        name,
        at,
        nodes,
        witness,
        parent,
        capacity,
        failure_domain,
        region,
        borrowed_bytes_max,
        spare,
    })
}

fn on_grid(grid: &GridFile, sites: &mut Vec<Site>) -> Result<(), Wrong> {
    if grid.rows == 0 || grid.columns == 0 || grid.rows.saturating_mul(grid.columns) > SITES_MAX {
        let message = format!("grid: rows × columns is 1 to {SITES_MAX}");
        return Err(Wrong::at("rows", message));
    }
    if !(1.0..=100_000.0).contains(&grid.spacing_m) {
        return Err(Wrong::at("spacing_m", "grid: spacing_m is 1 to 100000 metres"));
    }
    let nodes = check_nodes(&grid.prefix, grid.nodes)?;
    let degree_m = Point::new(0.0, 0.0).distance_m(Point::new(1.0, 0.0));
    let lat_step = grid.spacing_m / degree_m;
    let lon_step = lat_step / grid.center.lat.to_radians().cos().max(0.01);
    for row in 0..grid.rows {
        for column in 0..grid.columns {
            let from_middle = |place: usize, count: usize| place as f64 - (count - 1) as f64 / 2.0;
            let at = Point::new(
                grid.center.lat + from_middle(row, grid.rows) * lat_step,
                grid.center.lon + from_middle(column, grid.columns) * lon_step,
            );
            if !at.is_on_earth() {
                return Err(Wrong::at("center", "grid: it does not fit on the earth there"));
            }
            sites.push(plain(&format!("{}-{row}-{column}", grid.prefix), at, nodes)?);
        }
    }
    Ok(())
}

fn from_csv(
    from: &SitesFromFile,
    written: &WorldFile,
    files: &Files,
    sites: &mut Vec<Site>,
) -> Result<Option<String>, Wrong> {
    if !(1..=SITES_MAX).contains(&from.count_max) {
        return Err(Wrong::at("count_max", format!("sites_from: count_max is 1 to {SITES_MAX}")));
    }
    let nodes = check_nodes(&from.prefix, from.nodes)?;
    let (points, note) = match files.find(&from.csv) {
        Ok(path) => (read_points(&path, from, written)?, None),
        Err(_) if from.or_random => {
            let mut random = Random::stream(written.seed, "sites", 0);
            let area = written.area;
            let mut between = |low: f64, high: f64| low + (high - low) * random.fraction();
            let points = (0..from.count_max)
                .map(|_| Point::new(between(area.south, area.north), between(area.west, area.east)))
                .collect();
            let note = format!(
                "{} was not given, so the sites stand at random places in the same area.",
                from.csv.display()
            );
            (points, Some(note))
        }
        Err(why) => return Err(Wrong::at("csv", format!("sites_from: {why}"))),
    };
    for (number, at) in (1..).zip(points) {
        sites.push(plain(&format!("{}{number}", from.prefix), at, nodes)?);
    }
    Ok(note)
}

fn read_points(
    path: &Path,
    from: &SitesFromFile,
    written: &WorldFile,
) -> Result<Vec<Point>, Wrong> {
    let name = path.display();
    let bad = |why: String| Wrong::at("csv", format!("sites_from: {name}: {why}"));
    let reader = csv::ReaderBuilder::new().flexible(true).trim(csv::Trim::All).from_path(path);
    let mut reader = reader.map_err(|error| bad(error.to_string()))?;
    let headers = reader.headers().map_err(|error| bad(error.to_string()))?.clone();
    let column = |field: &'static str, wanted: &str| {
        headers.iter().position(|header| header == wanted).ok_or_else(|| {
            let there: Vec<&str> = headers.iter().collect();
            let message = format!("sites_from: {name} has no column {wanted:?}; it has {there:?}");
            Wrong::at(field, message)
        })
    };
    let (lat, lon) = (column("lat", &from.lat)?, column("lon", &from.lon)?);
    let mut points = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|error| bad(error.to_string()))?;
        let line = record.position().map_or(0, csv::Position::line);
        let number = |column: usize| {
            let text = record.get(column).unwrap_or_default();
            text.parse::<f64>().map_err(|_| bad(format!("line {line}: {text:?} is not a number")))
        };
        let at = Point::new(number(lat)?, number(lon)?);
        if written.area.contains(at) && points.len() < from.count_max {
            points.push(at);
        }
    }
    match points.is_empty() {
        true => Err(bad("no place in it lies in the world's area".to_owned())),
        false => Ok(points),
    }
}

#[cfg(test)]
mod tests {
    use super::super::World;
    use super::*;

    fn world(places: &str, folder: Option<&Path>) -> Result<World, String> {
        let text = format!(
            "name = \"w\"\ntitle = \"t\"\n[area]\nsouth = 37.7\nwest = -122.5\nnorth = 37.8\n\
             east = -122.3\n[links]\nclient_site = {{ base_ms = 1 }}\n\
             site_site = {{ matrix = {{ csv = 'm.csv', unit = 'rtt_ms' }} }}\n\
             node_node = {{ base_ms = 1 }}\n{places}"
        );
        World::parse(
            "w.toml",
            &text,
            &Files { folders: folder.map(Path::to_owned).into_iter().collect() },
        )
        .map_err(|error| error.to_string())
    }

    #[test]
    fn a_grid_has_its_spacing() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("m.csv"), "0,8\n8,0\n").unwrap();
        let grid = "[grid]\nrows = 5\ncolumns = 4\nspacing_m = 400\nprefix = 'ap'\n\
            center = { lat = 37.7879, lon = -122.4075 }\n";
        let world = world(grid, Some(folder.path())).unwrap();
        assert_eq!(world.sites.len(), 20);
        assert_eq!(world.sites[5].name.as_str(), "ap-1-1");
        for (a, b, expected_m) in [(0, 1, 400.0), (0, 4, 400.0), (0, 5, 565.7)] {
            let apart_m = world.sites[a].at.distance_m(world.sites[b].at);
            assert!((apart_m - expected_m).abs() < 1.0, "{a} {b} {apart_m}");
        }
        // Half of a round trip of 8 ms.
        assert_eq!(world.site_link(0, 1).latency.mean_ms(), 4.0);
    }

    #[test]
    fn sites_are_read_from_a_file_or_placed_at_random() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("m.csv"), "0").unwrap();
        let from = "[sites_from]\ncsv = 's.csv'\nlat = 'LAT'\nlon = 'LON'\nprefix = 'bs'\n\
            count_max = 2\n";
        let missing = world(from, Some(folder.path())).err().unwrap();
        assert!(missing.contains("w.toml:13: sites_from: cannot find s.csv"), "{missing}");
        let random = world(&format!("{from}or_random = true"), Some(folder.path())).unwrap();
        assert_eq!(random.sites.len(), 2);
        assert!(random.sites_note.unwrap().starts_with("s.csv was not given"));
        let rows = "ID,LON,LAT\n1,-122.4,37.75\n2,0,0\n3,-122.41,37.76\n4,-122.4,37.77\n";
        std::fs::write(folder.path().join("s.csv"), rows).unwrap();
        let read = world(from, Some(folder.path())).unwrap();
        assert_eq!(read.sites.len(), 2);
        assert_eq!(read.sites[1].at, Point::new(37.76, -122.41));
        assert_eq!(read.sites_note, None);
        std::fs::write(folder.path().join("s.csv"), "ID,LAT\n").unwrap();
        assert!(world(from, Some(folder.path())).err().unwrap().contains("no column \"LON\""));
    }

    #[test]
    fn a_matrix_that_is_none_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("m.csv"), "0,x\n").unwrap();
        let site = "[[site]]\nname = 'a'\nlat = 37.75\nlon = -122.4\n";
        let error = world(site, Some(folder.path())).err().unwrap();
        assert!(error.contains("\"x\" is not a number of ms"), "{error}");
    }
}
