//! Every limit of the system in one place, with the relations between them checked at compile time.
//!
//! A request beyond a limit fails with a clear error and loses nothing. Limits that operators may
//! lower are settings of `server`; these are the maxima.

use std::time::Duration;

/// A key: 64 KiB less what the state puts before it, as its engine's own keys end at 64 KiB.
pub const KEY_BYTES_MAX: usize = (64 << 10) - STATE_KEY_OVERHEAD_BYTES_MAX;
/// What the state may put before a key.
pub const STATE_KEY_OVERHEAD_BYTES_MAX: usize = 64;
/// A value; a hash's fields together (a hash is one record).
pub const VALUE_BYTES_MAX: usize = 64 << 20;
/// The name of a keyspace.
pub const KEYSPACE_NAME_BYTES_MAX: usize = 64;
/// The prefix by which a keyspace claims Redis keys.
pub const PREFIX_BYTES_MAX: usize = 256;
/// A session's token. It travels beside every request and answer of its session.
pub const SESSION_TOKEN_BYTES_MAX: usize = 1 << 10;
/// Keyspaces of a deployment.
pub const KEYSPACES_MAX: usize = 1024;
/// Nodes of a site.
pub const NODES_MAX: usize = 7;
/// Requests for global keys that wait in a node: for their slot's owner, or for its answer.
pub const ROUTED_MAX: usize = 65_536;
/// Bytes of cached copies of other sites' keys per keyspace and node, unless the keyspace sets
/// another.
pub const CACHE_BYTES_DEFAULT: u64 = 8 << 20;
/// The smallest value that a keyspace can set.
pub const CACHE_BYTES_MIN: u64 = 4 << 10;
/// The largest value that a keyspace can set.
pub const CACHE_BYTES_MAX: u64 = 256 << 20;
/// Bytes of such copies in a node for all keyspaces together; past it the least recently used copy
/// is removed, of whatever keyspace.
pub const CACHES_BYTES_MAX: u64 = 512 << 20;
/// The time for which a copy answers stale reads, unless its keyspace sets another.
pub const CACHE_AGE_MS_DEFAULT: u64 = 1_000;
/// The longest time that a keyspace can set.
pub const CACHE_AGE_MS_MAX: u64 = 60 * 60 * 1_000;
/// Sites of a deployment.
pub const SITES_MAX: usize = 10_000;
/// Regions of a deployment.
pub const REGIONS_MAX: usize = 16;
/// Ends of lost roots' orders that a region states by themselves, before the last one.
pub const EARLIER_ENDS_MAX: usize = 7;
/// Sites that hold the registry.
pub const REGISTRARS_MAX: usize = 5;
/// Changes of the registry whose outcome it remembers, for clients that ask again.
pub const REGISTRY_OUTCOMES_MAX: usize = 128;
/// Operators' commands about a site's members that it remembers, for clients that ask again.
pub const MEMBER_COMMANDS_REMEMBERED_MAX: usize = 64;
/// Ends of terms that the registry remembers, for sites that were away in all of them.
pub const TERMS_BEGAN_MAX: usize = 16;
/// Changes of the registry that wait at one site.
pub const REGISTRY_CHANGES_WAITING_MAX: usize = 256;
/// Messages of other sites that wait until a node has their sender's registry.
pub const MESSAGES_AHEAD_MAX: usize = 4_096;
/// Bytes of these messages.
pub const MESSAGES_AHEAD_BYTES_MAX: usize = 64 << 20;
/// Concurrent moves of slots of one site.
pub const MOVES_MAX: usize = 64;
/// Slots of one move.
pub const SLOTS_PER_MOVE_MAX: usize = 2_048;
/// Operators' orders of moves that a site remembers, so that a repeated one has no further effect.
pub const ORDERS_REMEMBERED_MAX: usize = 1_024;
/// The time for which a completed order is remembered.
pub const ORDER_REMEMBERED_MS: u64 = 24 * 60 * 60 * 1000;
/// When there are too many orders, the oldest is dropped, but none younger than this.
pub const ORDER_ASKED_AGAIN_MS: u64 = 10 * 60 * 1000;
/// Bytes of one chunk of a move (the record that exceeds the limit ends it).
pub const MOVE_CHUNK_BYTES_MAX: usize = 256 << 10;
/// Chunks of one move in flight.
pub const MOVE_CHUNKS_INFLIGHT_MAX: usize = 16;
/// Groups of one command that lends them, offers them, reports them or gives them back.
pub const LOANS_PER_COMMAND_MAX: usize = 256;
/// Bytes of the groups of one such command (the group that exceeds the limit ends it). A larger
/// group is not lent.
pub const LOANS_BYTES_MAX: usize = 1 << 20;
/// Bytes of a lent group: a write that would take it beyond sends it home first.
pub const LOAN_BYTES_MAX: u64 = 4 << 20;
/// Bytes of remembered answers of a slot beyond which no group of it is lent: each goes along with
/// the group.
pub const LOAN_ANSWERS_BYTES_MAX: usize = 8 << 20;
/// Bytes of remembered answers of a borrowed group: it goes home before a write that would take it
/// beyond.
pub const PART_ANSWERS_BYTES_MAX: usize = 2 * LOAN_ANSWERS_BYTES_MAX;
/// What a remembered answer takes in a message beside its content.
pub const ANSWER_SENT_BYTES: usize = 48;
/// Bytes of the tag of a group that is lent: a failover brings those of all loans.
pub const LOANS_TAG_BYTES_MAX: usize = 128;
/// Keys of slots that one command looks at to find those of the groups that it lends.
pub const LOANS_KEYS_EXAMINED_MAX: u64 = 65_536;
/// Groups that a site borrows, or remembers to have borrowed.
pub const LOANS_MAX: usize = 1 << 18;
/// Bytes of lent groups whose copies stay when their keyspace is cleared: the mirror gets all of
/// them at once.
pub const LENT_BYTES_CLEARED_MAX: usize = 4 << 20;
/// Borrowers of groups that a node remembers, so that requests go there at once.
pub const BORROWERS_KNOWN_MAX: usize = 65_536;
/// Commands of loans under way between two sites.
pub const LOANS_INFLIGHT_MAX: usize = 2;

/// What a millisecond of a keyspace's users counts, unless it states another number.
pub const PRIORITY_DEFAULT: u16 = 100;
/// The largest number that it can state.
pub const PRIORITY_MAX: u16 = 1_000;
/// Groups that are pinned to a site, in a deployment.
pub const PINS_MAX: usize = 1_024;

/// The name that a client gives itself.
pub const CLIENT_NAME_BYTES_MAX: usize = 256;
/// Accesses that a node has noted and not counted: about a second of them. Past it they are
/// dropped.
pub const ACCESSES_NOTED_MAX: usize = 1 << 17;
/// Groups of which a site's leader keeps a profile, 64 bytes each; those used least count by slot.
pub const PROFILES_MAX: usize = 1 << 18;
/// Sites in one answer about round trips, the nearest ones.
pub const ROUND_TRIPS_MAX: usize = 256;
/// The rate of a site's link to others, unless it states another one: a megabyte takes 10 ms.
pub const LINK_MBIT_PER_S_DEFAULT: u32 = 800;
/// Groups that a site states at once that it would lend to one that is full.
pub const BIDS_MAX: usize = 64;
/// Windows in the ledger of placement.
pub const LEDGER_WINDOWS_MAX: usize = 360;
/// Lent groups that the ledger shows, and as many borrowed ones.
pub const LEDGER_SHOWN_MAX: usize = 256;
/// Moved groups that the ledger follows; past it the one moved first is not any more.
pub const LEDGER_FOLLOWED_MAX: usize = 65_536;
/// Buckets of a distribution of latencies; beyond that the lowest are put together.
pub const SKETCH_BUCKETS_MAX: usize = 256;

/// Bytes of a site's writes to causal keyspaces that have no place in the region's order; past it
/// such writes are refused.
pub const CAUSAL_UNORDERED_BYTES_MAX: u64 = 256 << 20;
/// Bytes of a site's own writes that it keeps beside its keys although it has imported their
/// places, the newest: if the root is lost with these places, they get others.
pub const CAUSAL_OWN_KEPT_BYTES_MAX: u64 = 32 << 20;
/// Bytes of the region's order that its root keeps for sites that have not imported it; past it
/// nothing more is ordered.
pub const CAUSAL_ORDER_BYTES_MAX: u64 = 1 << 30;
/// Of a region beside others: bytes of the order that its sites keep until all regions have taken
/// it; past it none of its own writes is ordered. For less than the minimum alone the root sets no
/// clock.
pub const CAUSAL_BRIDGED_BYTES_MAX: u64 = 128 << 20;
/// See [`CAUSAL_BRIDGED_BYTES_MAX`].
pub const CAUSAL_BRIDGED_BYTES_MIN: u64 = 64 << 10;
/// Bytes of the region's order that its root keeps for sites that are away; past it the order is
/// trimmed, and such a site gets its keys anew.
pub const CAUSAL_ORDER_KEPT_BYTES_MAX: u64 = 512 << 20;
/// Entries of the order that one command trims; writes with a position that a command of a resync
/// drops.
pub const CAUSAL_TRIMMED_PER_COMMAND_MAX: usize = 4_096;
/// Bytes of writes in one offer to the root of a region (the write that exceeds the limit ends it).
pub const CAUSAL_OFFER_BYTES_MAX: usize = 256 << 10;
/// Writes of one offer.
pub const CAUSAL_OFFER_WRITES_MAX: usize = 4_096;
/// Offers of one site in flight, and messages with places of a root's order to the root of another
/// region: one for each commit, as they come, over a long way. Past it writes wait for an answer.
pub const CAUSAL_OFFERS_INFLIGHT_MAX: usize = 64;
/// Of these, so many are sent without a pause.
pub const CAUSAL_OFFERS_AT_ONCE_MAX: usize = 8;
/// Bytes of the writes in all of these (the offer that exceeds the limit is the last).
pub const CAUSAL_OFFERS_INFLIGHT_BYTES_MAX: usize = 2 << 20;
/// Places of a region's order in one message.
pub const CAUSAL_BATCH_PLACES_MAX: usize = 1_024;
/// Places that a root has sent to one site and that the site has not imported.
pub const CAUSAL_PLACES_INFLIGHT_MAX: u64 = 16_384;
/// Bytes of other sites' writes that a site keeps until their places come; past it they are
/// dropped, and asked for when their turn comes.
pub const CAUSAL_PAYLOADS_BYTES_MAX: usize = 64 << 20;
/// Bytes of writes in one message to a site (the write that exceeds the limit ends it).
pub const CAUSAL_PAYLOAD_BYTES_MAX: usize = 256 << 10;
/// Writes that a site asks a root for in one message.
pub const CAUSAL_PULLED_MAX: usize = 1_024;
/// Bytes of writes in one import (the write that exceeds the limit ends it).
pub const CAUSAL_IMPORT_BYTES_MAX: usize = 512 << 10;
/// Bytes of the order in one chunk of a resync, and of records (what exceeds the limit ends it).
pub const CAUSAL_RESYNC_BYTES_MAX: usize = 256 << 10;
/// Bytes of a site's writes without a position that are made again on top of what a resync has
/// brought, by one command; while there are more it goes on behind the order.
pub const CAUSAL_RESYNC_UNORDERED_BYTES_MAX: u64 = COMMAND_BYTES_MAX as u64;
/// Requests of sessions that wait in a node until it has what their sessions have seen.
pub const CAUSAL_REQUESTS_WAITING_MAX: usize = 65_536;
/// Questions for positions of other sites' writes that wait at a node of a root.
pub const CAUSAL_QUESTIONS_WAITING_MAX: usize = 65_536;
/// Clears of causal keyspaces whose places are not released, at a node of the root.
pub const CAUSAL_CLEARS_WAITING_MAX: usize = 1_024;
/// Of so many numbered writes with a place a site keeps the numbers, and of as many of its own
/// without one.
pub const CAUSAL_NUMBERS_KEPT_MAX: usize = 65_536;
/// Retried writes that some site has not imported, or whose first site has not come back: a resync
/// brings them at once.
pub const CAUSAL_RETRIES_OPEN_MAX: usize = 1_024;
/// Bytes of the keys of a numbered put.
pub const CAUSAL_NUMBERED_KEYS_BYTES_MAX: usize = 4 << 10;
/// Bytes that a site holds on demand of one keyspace: what an operator may ask for, and what is
/// meant otherwise.
pub const CAUSAL_HELD_BYTES_MIN: u64 = 1 << 10;
/// See [`CAUSAL_HELD_BYTES_MIN`].
pub const CAUSAL_HELD_BYTES_MAX: u64 = 1 << 40;
/// See [`CAUSAL_HELD_BYTES_MIN`].
pub const CAUSAL_HELD_BYTES_DEFAULT: u64 = 64 << 20;
/// Keys of one keyspace that a site holds on demand.
pub const CAUSAL_HELD_KEYS_MAX: usize = 262_144;
/// What a held key counts beside its own bytes and those of what it holds.
pub const CAUSAL_HELD_KEY_OVERHEAD_BYTES: u64 = 128;
/// Keys that one command fetches or evicts, and that a request may wait for.
pub const CAUSAL_FETCHED_KEYS_MAX: usize = 256;
/// Bytes of keys and what they hold in one place of the order (what exceeds the limit is left out,
/// but not the first one).
pub const CAUSAL_FETCHED_BYTES_MAX: usize = CAUSAL_IMPORT_BYTES_MAX;
/// Fetches of one site in flight.
pub const CAUSAL_FETCHES_INFLIGHT_MAX: usize = 8;
/// Keys that a site waits for.
pub const CAUSAL_WANTS_MAX: usize = 65_536;
/// Keys of one write whose hashes are beside its place; the content of a write with more is sent to
/// each site.
pub const CAUSAL_PLACE_HASHES_MAX: usize = 16;
/// Keys that a root takes one site to hold, to send it writes without being asked.
pub const CAUSAL_HINTS_MAX: usize = 65_536;

/// One request with everything in it, before it is executed.
pub const COMMAND_BYTES_MAX: usize = 80 << 20;
/// Bytes of a gRPC request that is being received which do not count against its connection: what all
/// others hold beyond these is at most [`COMMAND_BYTES_MAX`].
pub const RECEIVING_FREE_BYTES: usize = 64 << 10;
/// Arguments of one request (keys of an MGET, fields of an HSET …).
pub const COMMAND_ARGS_MAX: usize = 1 << 20;
/// Fields of one gRPC message, each element of a list being one.
pub const MESSAGE_FIELDS_MAX: usize = 65_536;
/// Steps of one transaction, and keys it may watch.
pub const TRANSACTION_STEPS_MAX: usize = 10_000;
/// Concurrent requests of one connection (a deeper pipeline waits in the socket).
pub const PIPELINE_MAX: usize = 1024;
/// Client connections of a node.
pub const CONNECTIONS_MAX: usize = 10_000;
/// Passwords that wait to be verified in a node; past it a login is refused, and one of a
/// connection with a wrong password before gives way to one of a connection without.
pub const LOGINS_WAITING_MAX: usize = 256;
/// The same, per address.
pub const LOGINS_PER_ADDRESS_MAX: usize = 16;
/// Threads that verify passwords; each needs the memory of one argon2 run.
pub const LOGIN_THREADS_MAX: usize = 2;
/// Watches and subscriptions of a node.
pub const WATCHES_MAX: usize = 10_000;
/// Open SCAN cursors of a node; the one idle longest is dropped first.
pub const SCAN_CURSORS_MAX: usize = 4_096;
/// Items of one page of a scan.
pub const SCAN_PAGE_ITEMS_MAX: usize = 10_000;
/// Bytes of one page of a scan (the item that exceeds the limit ends it).
pub const SCAN_PAGE_BYTES_MAX: usize = 4 << 20;

/// Total size of the answer to one request (for example of an MGET, or of a transaction's reads).
pub const ANSWER_BYTES_MAX: usize = 80 << 20;

/// Commands of one log entry.
pub const BATCH_COMMANDS_MAX: usize = 4_096;
/// Bytes of one log entry (the command that exceeds the limit ends it).
pub const BATCH_BYTES_MAX: usize = 1 << 20;
/// The largest entry there can be: a full batch and one largest command.
pub const ENTRY_BYTES_MAX: usize = BATCH_BYTES_MAX + COMMAND_BYTES_MAX;
/// Writes that wait in a node for their turn; past it a write is refused as overloaded.
pub const WRITES_WAITING_MAX: usize = 65_536;
/// Bytes of them, and of the requests of sessions that wait before.
pub const WRITES_WAITING_BYTES_MAX: usize = 256 << 20;
/// Linearizable reads that wait for a read index.
pub const READS_WAITING_MAX: usize = 65_536;
/// Inputs that wait for a site's thread.
pub const INPUTS_WAITING_MAX: usize = 65_536;
/// Entries of the log that stay in memory for followers, in bytes.
pub const ENTRIES_CACHED_BYTES_MAX: usize = 8 << 20;
/// Bytes of entries in one message to a follower.
pub const APPEND_BYTES_MAX: usize = 1 << 20;
/// Append messages in flight to one follower.
pub const APPENDS_INFLIGHT_MAX: usize = 64;
/// Messages from other nodes that wait for the site's thread; past it their connections are not
/// read.
pub const PEER_MESSAGES_WAITING_MAX: usize = 256;

/// One frame between nodes.
pub const PEER_FRAME_BYTES_MAX: usize = ENTRY_BYTES_MAX + APPEND_BYTES_MAX;
/// Bytes that wait for one peer link; past it messages to that peer are dropped (Raft repeats).
pub const PEER_BACKLOG_BYTES_MAX: usize = 2 * PEER_FRAME_BYTES_MAX;
/// One frame of a connection between nodes that is not proved yet.
pub const PEER_HELLO_BYTES_MAX: usize = 16 << 10;
/// How long a connection between nodes may take to be made and proved.
pub const PEER_PROOF_DEADLINE: Duration = Duration::from_secs(2);
/// Accepted connections between nodes that are not proved yet; past it the next one is closed.
pub const PEER_LINKS_UNPROVED_MAX: usize = 256;
/// The same, per address.
pub const PEER_LINKS_UNPROVED_PER_ADDRESS_MAX: usize = 64;
/// Secrets that are accepted at the same time: while they are changed, the new one and the old one.
pub const PEER_SECRETS_MAX: usize = 2;
/// The shortest secret, in bytes: an attacker with a recorded proof can guess offline.
pub const PEER_SECRET_BYTES_MIN: usize = 32;
/// The longest.
pub const PEER_SECRET_BYTES_MAX: usize = 1_024;
/// The lifetime of a join token, unless the request sets another.
pub const JOIN_TOKEN_LIFE_DEFAULT: Duration = Duration::from_secs(60 * 60);
/// The longest lifetime of a join token.
pub const JOIN_TOKEN_LIFE_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// The text of a join token.
pub const JOIN_TOKEN_BYTES_MAX: usize = 1_024;
/// One chunk of a snapshot on its way to another node.
pub const SNAPSHOT_CHUNK_BYTES_MAX: usize = 1 << 20;

/// One segment file of the log (a larger single entry makes a larger segment).
pub const LOG_SEGMENT_BYTES: u64 = 16 << 20;
/// The log is cut behind a snapshot once it is longer than this and than the snapshot's state.
pub const LOG_BYTES_BEFORE_SNAPSHOT: u64 = 128 << 20;
/// Entries kept behind a new snapshot for followers that lag slightly; fewer if they are longer
/// than the log that a snapshot is made after.
pub const LOG_ENTRIES_KEPT_BEHIND_SNAPSHOT: u64 = 10_000;

/// Keys that one log entry may expire; more go in the next.
pub const EXPIRED_PER_ENTRY_MAX: usize = 1_000;
/// Records of a cleared or dropped keyspace that one tick removes; more go in the next.
pub const GARBAGE_PER_TICK_MAX: usize = 1_000;
/// Bytes of these records (the record that exceeds the limit ends it).
pub const GARBAGE_BYTES_PER_TICK_MAX: usize = 4 << 20;
/// Changes that one log entry trims from the change log; more go in the next.
pub const CHANGES_TRIMMED_PER_ENTRY_MAX: usize = 10_000;
/// Changes kept for consumers of one site's change log; a consumer further behind receives an error
/// and must start again from a snapshot.
pub const CHANGES_RETAINED_MAX: u64 = 1_000_000;
/// Keys that a site lists of the writes that one failover lost.
pub const LOST_KEYS_MAX: usize = 65_536;
/// Bytes of these keys.
pub const LOST_KEYS_BYTES_MAX: usize = 4 << 20;
/// Bytes of a page of such a list (the key that exceeds the limit ends it).
pub const LOST_KEYS_PAGE_BYTES_MAX: usize = 32 << 10;
/// Such lists that a site has; the one of the earliest failover goes first.
pub const LOST_REPORTS_MAX: usize = 8;
/// Durable cursors of a site.
pub const CURSORS_MAX: usize = 1_024;
/// Answers remembered for one client's retries.
pub const REQUESTS_REMEMBERED_PER_CLIENT_MAX: usize = 65_536;
/// An answer longer than this is not remembered: a retry of its request is refused, not repeated.
pub const ANSWER_REMEMBERED_BYTES_MAX: usize = 64 << 10;
/// Answers remembered for all clients; past it the client idle longest is dropped.
pub const REQUESTS_REMEMBERED_MAX: usize = 1 << 20;
/// Bytes of these answers.
pub const REQUESTS_REMEMBERED_BYTES_MAX: usize = 256 << 20;
/// Clients whose answers are remembered (of global keyspaces, one for each slot that a client wrote
/// to); the one idle longest is dropped first.
pub const CLIENTS_REMEMBERED_MAX: usize = 1 << 18;
/// How long, in log time, an idle client is remembered.
pub const CLIENT_REMEMBERED_MS: u64 = 10 * 60 * 1000;

/// Facts (runs of slots with one owner at one epoch) in one message about the map of slots; what is
/// left is sent after a later comparison.
pub const MAP_FACTS_PER_MESSAGE_MAX: usize = 4_096;
/// Facts that wait to be pushed to other sites; what finds no room is found by comparison.
pub const MAP_UNSENT_MAX: usize = 1_024;

/// Points of the ring that one site takes, by its capacity.
pub const RING_VIRTUALS_MAX: u32 = 64;
/// Other sites in the successor list of a virtual node: fewer neighbouring sites than this may
/// crash at the same moment, and every survivor still has the next one. A list ends sooner only at
/// a virtual node of its own site, which is up whenever the list is read.
pub const RING_SUCCESSORS: usize = 8;
/// Members of a successor list in all, where several are of one site.
pub const RING_LIST_MEMBERS_MAX: usize = 64;
/// Messages of one lookup on the ring. A sound ring of 10,000 sites needs 5 on average.
pub const RING_HOPS_MAX: u32 = 64;
/// Sites that one lookup avoids because they did not answer; past it the lookup has failed.
pub const RING_AVOIDED_MAX: usize = 16;
/// Concurrent lookups of a node; past it the next one fails at once.
pub const RING_LOOKUPS_MAX: usize = 1_024;
/// Concurrent searches of a site for itself (to join, to merge, for fingers).
pub const RING_SEARCHES_MAX: usize = 8;
/// Searches for its own places that wait; past it these places are found later, by chance.
pub const RING_SEEKS_WAITING_MAX: usize = 256;
/// Sites of the directory that a returning site tries before it concludes that no other is up.
pub const RING_TRIED_MAX: usize = 64;
/// Sites of the directory that a ring remembers to merge with.
pub const RING_KNOWN_MAX: usize = 10_000;

/// Operations of one transaction of the etcd that holds a site's keys: etcd's own limit, unless it
/// was started with another `--max-txn-ops`.
pub const ETCD_OPS_MAX: usize = 128;
/// Bytes of one request to etcd, keys and values together. etcd refuses more than 1.5 MiB unless it
/// was started with another `--max-request-bytes`; protobuf's overhead must fit between.
pub const ETCD_REQUEST_BYTES_MAX: usize = 1 << 20;
/// A row of the state that is one value in etcd; longer ones are cut into parts.
pub const ETCD_ROW_BYTES_MAX: usize = 64 << 10;
/// One part of a longer row.
pub const ETCD_PART_BYTES_MAX: usize = 512 << 10;
/// Rows read at once when a site's state is read from etcd.
pub const ETCD_PAGE_ROWS_MAX: usize = 1_024;
/// The prefix of all keys of one site in etcd.
pub const ETCD_PREFIX_BYTES_MAX: usize = 256;
/// Changed rows that wait for etcd, in bytes; past it a request is refused as overloaded.
pub const ETCD_WAITING_BYTES_MAX: usize = 64 << 20;
/// Requests whose answers wait for etcd; past it the next one is refused as overloaded.
pub const ETCD_ANSWERS_WAITING_MAX: usize = 65_536;

/// A request without a deadline of its own is given up after this. A write that is given up is
/// unknown: it may still be applied.
pub const REQUEST_DEADLINE: Duration = Duration::from_secs(10);

const _: () = {
    assert!(KEY_BYTES_MAX + VALUE_BYTES_MAX < COMMAND_BYTES_MAX);
    // A watch's response is sent once it has more than a page's bytes.
    assert!(SCAN_PAGE_BYTES_MAX + 2 * KEY_BYTES_MAX + VALUE_BYTES_MAX < COMMAND_BYTES_MAX);
    assert!(2 * TRANSACTION_STEPS_MAX < MESSAGE_FIELDS_MAX);
    assert!(SCAN_PAGE_ITEMS_MAX < MESSAGE_FIELDS_MAX && SITES_MAX < MESSAGE_FIELDS_MAX);
    assert!(VALUE_BYTES_MAX <= ANSWER_BYTES_MAX);
    // Offers and reports of groups with all that belongs to them.
    assert!(
        LOANS_BYTES_MAX + LOAN_BYTES_MAX as usize + PART_ANSWERS_BYTES_MAX < COMMAND_BYTES_MAX / 2
    );
    assert!(ANSWER_REMEMBERED_BYTES_MAX + ANSWER_SENT_BYTES < LOAN_ANSWERS_BYTES_MAX);
    assert!(LOANS_MAX * (LOANS_TAG_BYTES_MAX + 64) < PEER_FRAME_BYTES_MAX);
    // A write of the longest value always has a place.
    assert!((COMMAND_BYTES_MAX as u64) < CAUSAL_UNORDERED_BYTES_MAX);
    assert!(CAUSAL_UNORDERED_BYTES_MAX <= CAUSAL_ORDER_BYTES_MAX);
    // Trimming begins long before nothing more is ordered.
    assert!(2 * CAUSAL_ORDER_KEPT_BYTES_MAX <= CAUSAL_ORDER_BYTES_MAX);
    assert!(2 * CAUSAL_RESYNC_BYTES_MAX + COMMAND_BYTES_MAX < ENTRY_BYTES_MAX);
    assert!(
        2 * CAUSAL_RETRIES_OPEN_MAX * CAUSAL_NUMBERED_KEYS_BYTES_MAX + 2 * CAUSAL_RESYNC_BYTES_MAX
            < COMMAND_BYTES_MAX
    );
    assert!(ANSWER_BYTES_MAX < PEER_FRAME_BYTES_MAX);
    assert!(REQUESTS_REMEMBERED_PER_CLIENT_MAX <= REQUESTS_REMEMBERED_MAX);
    assert!(BATCH_BYTES_MAX <= APPEND_BYTES_MAX);
    assert!(CAUSAL_OFFER_BYTES_MAX + COMMAND_BYTES_MAX < ENTRY_BYTES_MAX);
    assert!(CAUSAL_IMPORT_BYTES_MAX + COMMAND_BYTES_MAX < ENTRY_BYTES_MAX);
    assert!(CAUSAL_FETCHED_BYTES_MAX <= CAUSAL_IMPORT_BYTES_MAX);
    assert!(CAUSAL_HELD_BYTES_MIN <= CAUSAL_HELD_BYTES_DEFAULT);
    assert!(CAUSAL_HELD_BYTES_DEFAULT <= CAUSAL_HELD_BYTES_MAX);
    assert!(CAUSAL_PAYLOAD_BYTES_MAX + COMMAND_BYTES_MAX < PEER_FRAME_BYTES_MAX);
    assert!(CAUSAL_BATCH_PLACES_MAX as u64 <= CAUSAL_PLACES_INFLIGHT_MAX);
    assert!(ENTRY_BYTES_MAX + APPEND_BYTES_MAX <= PEER_FRAME_BYTES_MAX);
    assert!(PEER_FRAME_BYTES_MAX <= PEER_BACKLOG_BYTES_MAX);
    assert!(SNAPSHOT_CHUNK_BYTES_MAX < PEER_FRAME_BYTES_MAX);
    // The secrets of a site and of its deployment, encrypted, in one frame.
    assert!(2 * PEER_SECRETS_MAX * PEER_SECRET_BYTES_MAX + 1_024 < PEER_HELLO_BYTES_MAX);
    assert!(PEER_LINKS_UNPROVED_PER_ADDRESS_MAX < PEER_LINKS_UNPROVED_MAX);
    assert!(JOIN_TOKEN_LIFE_DEFAULT.as_secs() < JOIN_TOKEN_LIFE_MAX.as_secs());
    assert!(BATCH_COMMANDS_MAX <= WRITES_WAITING_MAX);
    assert!(PIPELINE_MAX <= WRITES_WAITING_MAX);
    assert!(BATCH_BYTES_MAX as u64 <= LOG_SEGMENT_BYTES);
    assert!(LOG_SEGMENT_BYTES < LOG_BYTES_BEFORE_SNAPSHOT);
    assert!(CACHE_BYTES_MIN <= CACHE_BYTES_DEFAULT && CACHE_BYTES_DEFAULT <= CACHE_BYTES_MAX);
    assert!(CACHE_BYTES_MAX <= CACHES_BYTES_MAX);
    assert!(CACHE_AGE_MS_DEFAULT <= CACHE_AGE_MS_MAX);
    assert!(MAP_UNSENT_MAX <= MAP_FACTS_PER_MESSAGE_MAX);
    // 40 bytes each at most.
    assert!(64 * MAP_FACTS_PER_MESSAGE_MAX < PEER_FRAME_BYTES_MAX);
    assert!(RING_SUCCESSORS < RING_LIST_MEMBERS_MAX);
    assert!((RING_AVOIDED_MAX as u32) < RING_HOPS_MAX);
    assert!(RING_VIRTUALS_MAX as usize <= RING_SEEKS_WAITING_MAX);
    assert!(RING_SEARCHES_MAX < RING_LOOKUPS_MAX);
    assert!(RING_TRIED_MAX <= RING_KNOWN_MAX);
    assert!(ETCD_ROW_BYTES_MAX <= ETCD_PART_BYTES_MAX);
    // A part with the longest key of a row, and the owner's key as well.
    assert!(ETCD_PART_BYTES_MAX + (64 << 10) + 4 * ETCD_PREFIX_BYTES_MAX < ETCD_REQUEST_BYTES_MAX);
    assert!(LOGINS_PER_ADDRESS_MAX < LOGINS_WAITING_MAX);
};
