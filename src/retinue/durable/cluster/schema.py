"""The shared tables of the cluster, and their version. DBOS has its own tables in another schema.

Each version is a migration step; new tables are created by all steps. A released step MUST NOT be changed.
"""

from typing import Final

_FIRST = """
CREATE SCHEMA IF NOT EXISTS retinue;
CREATE TABLE IF NOT EXISTS retinue.meta (version integer NOT NULL);
CREATE TABLE IF NOT EXISTS retinue.workers (
    id text PRIMARY KEY, lock_key bigint NOT NULL, backend integer NOT NULL, host text NOT NULL, pid integer NOT NULL,
    version text NOT NULL, slots integer NOT NULL, started timestamptz NOT NULL DEFAULT now(),
    seen timestamptz NOT NULL DEFAULT now(), gone timestamptz);
CREATE TABLE IF NOT EXISTS retinue.runs (
    id text PRIMARY KEY, run text NOT NULL, attempt integer NOT NULL, face text NOT NULL, agent text NOT NULL,
    description text NOT NULL, queue text NOT NULL, assignment jsonb NOT NULL, owner text NOT NULL DEFAULT '',
    epoch integer NOT NULL DEFAULT 0, created timestamptz NOT NULL DEFAULT now(), started timestamptz,
    finished timestamptz, outcome jsonb);
CREATE INDEX IF NOT EXISTS runs_open ON retinue.runs (owner) WHERE finished IS NULL;
CREATE TABLE IF NOT EXISTS retinue.records (
    seq bigserial PRIMARY KEY, run text NOT NULL, attempt integer NOT NULL, epoch integer NOT NULL,
    kind text NOT NULL, path text NOT NULL, place bigint NOT NULL, data bytea NOT NULL,
    UNIQUE (run, kind, path, place));
CREATE TABLE IF NOT EXISTS retinue.events (
    seq bigserial PRIMARY KEY, id text NOT NULL, epoch integer NOT NULL, number integer NOT NULL, data bytea NOT NULL,
    UNIQUE (id, epoch, number));
CREATE TABLE IF NOT EXISTS retinue.words (
    seq bigserial PRIMARY KEY, id text NOT NULL, key text NOT NULL UNIQUE, kind text NOT NULL, data jsonb NOT NULL);
CREATE INDEX IF NOT EXISTS words_run ON retinue.words (id, seq);
CREATE TABLE IF NOT EXISTS retinue.leases (
    id text PRIMARY KEY, tokens bigint, usd double precision,
    spent_tokens bigint NOT NULL DEFAULT 0, spent_usd double precision NOT NULL DEFAULT 0,
    held_tokens bigint NOT NULL DEFAULT 0, held_usd double precision NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS retinue.holds (
    id text PRIMARY KEY, run text NOT NULL, leases text[] NOT NULL, tokens bigint NOT NULL,
    usd double precision NOT NULL);
CREATE INDEX IF NOT EXISTS holds_run ON retinue.holds (run);
CREATE TABLE IF NOT EXISTS retinue.parcels (
    digest text PRIMARY KEY, data bytea NOT NULL, created timestamptz NOT NULL DEFAULT now());
"""

_CASES = """
CREATE TABLE retinue.cases (
    seq bigserial PRIMARY KEY, key text NOT NULL UNIQUE, id text NOT NULL, epoch integer NOT NULL,
    waits boolean NOT NULL, data bytea NOT NULL, created timestamptz NOT NULL DEFAULT now());
CREATE INDEX cases_run ON retinue.cases (id, seq);
"""
"""Approval requests for the front end."""

_GUARD = """
CREATE FUNCTION retinue.check_version() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    found integer := (SELECT version FROM retinue.meta);
    known text := coalesce(nullif(current_setting('retinue.version', true), ''), 'an older one');
BEGIN
    IF known <> found::text THEN
        RAISE EXCEPTION 'the tables are of version % by now, this program knows %', found, known;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER check_version BEFORE INSERT ON retinue.workers EXECUTE FUNCTION retinue.check_version();
CREATE TRIGGER check_version BEFORE INSERT ON retinue.runs EXECUTE FUNCTION retinue.check_version();
"""
"""A process that checked the version before an upgrade notices it when it sends a run or begins to work.

A statement-level trigger, so that it costs one query for any number of rows.
"""

_SECTIONS = """
UPDATE retinue.runs SET assignment = assignment - 'systemPrompt' || jsonb_build_object(
    'sections', jsonb_build_array(jsonb_build_array('prompt', assignment->'systemPrompt')))
WHERE assignment ? 'systemPrompt';
"""
"""Prompts consist of sections now: the prompt of an older program becomes one section."""

_HOME = """
ALTER TABLE retinue.runs ADD COLUMN heard timestamptz, ADD COLUMN home timestamptz;
UPDATE retinue.runs r SET heard = finished, home = finished WHERE finished IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM retinue.events e WHERE e.id = r.id);
"""
"""Whether a front end has the results of a run; earlier versions deleted the events once they had the outcome."""

_GATES = """
CREATE TABLE retinue.gates (name text PRIMARY KEY, until_ms bigint NOT NULL, probed timestamptz);
"""
"""Usage limits of providers."""

STEPS: Final = (_FIRST, _CASES, _GUARD + _SECTIONS, _HOME, _GATES)
"""The migration from each version to the next; the first one creates the tables."""

VERSION: Final = len(STEPS)
"""A program with another version does not touch the tables, except a worker with a later one (`upgrade`)."""
