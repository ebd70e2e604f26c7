//! The store of a simulated fleet: SQLite behind connections that may break. The judge learns of everything that it accepts.
//!
//! A life in which the store fails over has it in a file, of which a standby's copy is made: in memory, no second connection sees
//! the database. A standby that is promoted has what was in the copy and nothing else, and, like PostgreSQL's new timeline, begins
//! a new epoch.

mod polling;
mod unused;
mod upkeep;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::time::Timestamp;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, SqliteConnection};
use store::sqlite::SqliteStore;
use store::{Events, RelayTurn, StoreError, Upkeep};
use tempfile::TempDir;

use crate::blocking::run;
use crate::life::Server;
use crate::line::Line;

/// The server.
pub(crate) struct StoreServer(Mutex<Served>);

struct Served {
    store: Arc<SqliteStore>,
    turn: Turn,
    /// How often it failed over: a call to the former primary has no effect on the new one.
    term: usize,
    files: Option<Files>,
    /// Each epoch, and the last event that it took over.
    epochs: Vec<(String, i64)>,
}

/// The process that passes events on, and until when: SQLite uses the machine's clock.
type Turn = Option<(String, Timestamp)>;

/// Where the databases are.
struct Files {
    folder: TempDir,
    /// Which one is in use.
    used: usize,
    /// How many there were: the newest is the standby's, or in use.
    made: usize,
    /// The standby, if it lags.
    standby: Option<Standby>,
}

/// A standby that receives nothing more.
struct Standby {
    turn: Turn,
}

impl Files {
    fn path(&self, number: usize) -> PathBuf {
        self.folder.path().join(format!("{number}.db"))
    }
}

/// Opens a database of which no other process knows.
async fn connect(path: &Path) -> SqliteConnection {
    SqliteConnectOptions::new().filename(path).connect().await.expect("a database of this life")
}

impl StoreServer {
    /// Opens a store, in files if it has a standby.
    pub(crate) fn new(has_standby: bool) -> Self {
        let memory = Path::new("/dev/shm");
        let folder = || if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let files = has_standby.then(|| Files { folder: folder().expect("a folder"), used: 1, made: 1, standby: None });
        let url = files.as_ref().map_or("sqlite::memory:".to_owned(), |files| files.path(1).display().to_string());
        let store = run(SqliteStore::open(&url)).expect("a new store");
        let epochs = vec![(epoch(&store), 0)];
        StoreServer(Mutex::new(Served { store: Arc::new(store), turn: None, term: 0, files, epochs }))
    }

    pub(crate) fn has_standby(&self) -> bool {
        common::lock(&self.0).files.is_some()
    }

    /// Returns the store in use.
    pub(crate) fn current(&self) -> Arc<SqliteStore> {
        Arc::clone(&common::lock(&self.0).store)
    }

    fn term(&self) -> usize {
        common::lock(&self.0).term
    }

    /// Returns each epoch, oldest first, and the last event that it took over.
    pub(crate) fn epochs(&self) -> Vec<(String, i64)> {
        common::lock(&self.0).epochs.clone()
    }

    /// From now on the standby receives nothing more.
    pub(crate) fn copy(&self) {
        let mut served = common::lock(&self.0);
        let (turn, Some(files)) = (served.turn.clone(), &mut served.files) else { return };
        // One that lagged is rebuilt.
        files.standby = Some(Standby { turn });
        files.made += 1;
        let (from, to) = (files.path(files.used), files.path(files.made));
        run(async {
            let mut on = connect(&from).await;
            let copy = sqlx::query("VACUUM INTO ?1").bind(to.display().to_string());
            copy.execute(&mut on).await.expect("a copy");
            on.close().await.expect("closed");
        });
    }

    /// The standby is promoted. If it did not lag, it has everything. It begins an epoch unless it `keeps_epoch`.
    pub(crate) fn fail_over(&self, keeps_epoch: bool) {
        let lags = common::lock(&self.0).files.as_ref().is_some_and(|files| files.standby.is_some());
        if !lags {
            self.copy();
        }
        let mut served = common::lock(&self.0);
        let Some(files) = &mut served.files else { return };
        files.used = files.made;
        let (path, turn) = (files.path(files.used), files.standby.take().and_then(|standby| standby.turn));
        run(async {
            // A lease is by the machine's clock there, and by ours in `turn`.
            let mut on = connect(&path).await;
            sqlx::query("UPDATE relay SET until = 0").execute(&mut on).await.expect("the relay's row");
            on.close().await.expect("closed");
        });
        let store = run(SqliteStore::open(&path.display().to_string())).expect("a copy of a store");
        if !keeps_epoch {
            run(store.begin_epoch()).expect("a new epoch");
        }
        let begun = (epoch(&store), run(store.latest_seq()).expect("its last event"));
        served.epochs.push(begun);
        (served.store, served.turn) = (Arc::new(store), turn);
        served.term += 1;
    }

    /// Takes the turn by the simulation's clock. A holder whose turn has expired releases it first.
    fn relay_turn(&self, store: &SqliteStore, turn: &RelayTurn<'_>, now: Timestamp) -> Result<Option<i64>, StoreError> {
        let mut served = common::lock(&self.0);
        if let Some((other, until)) = served.turn.as_ref().filter(|(other, _)| *other != turn.holder) {
            if *until > now {
                return Ok(None);
            }
            let over = RelayTurn { holder: other, confirmed: 0, epoch: "", lasts: Duration::ZERO };
            run(store.relay_turn(&over))?;
        }
        served.turn = Some((turn.holder.to_owned(), now.after(turn.lasts)));
        run(store.relay_turn(turn))
    }
}

fn epoch(store: &SqliteStore) -> String {
    run(store.events(0, 1)).expect("events").epoch
}

/// The store as one process sees it.
pub(crate) struct SeenStore {
    pub(crate) line: Line,
    pub(crate) server: Arc<StoreServer>,
}

fn lost() -> StoreError {
    StoreError::Late { action: "be used by this process", limit: Server::Store.patience() }
}

impl SeenStore {
    async fn call<T: Send + 'static>(
        &self,
        name: &'static str,
        call: impl FnOnce(&SqliteStore) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (server, term) = (Arc::clone(&self.server), self.server.term());
        let run = move || if server.term() == term { call(&server.current()) } else { Err(lost()) };
        self.line.call(name, lost, run).await
    }
}
