// Puts that are sent to another site when one does not answer. Each has a number, by which it is made once.

import { randomBytes } from "node:crypto";
import { Command } from "ioredis";

/** A put, and its attempts so far. */
export interface Put {
  readonly command: Command;
  readonly number: string;
  /** The site that is tried first. */
  first: string;
}

/** What the keys of a put may have together: more is not sent to several sites. */
const KEYS_BYTES_MAX = 4_096;

/** The numbers of a session's puts. */
export class Numbers {
  readonly #client = (randomBytes(8).readBigUInt64BE() >> 1n) | 1n;
  #last = 0;

  next(): string {
    this.#last += 1;
    return `${this.#client}-${this.#last}`;
  }
}

/** The first attempt. If it was certainly not made, another site can be the first one. */
export function firstOf({ command, number, first }: Put): Command {
  return new Command("portolan.once", [number, first, "OPTIONAL", command.name, ...argsOf(command)]);
}

/** An attempt after one that may have been made. */
export function againOf({ command, number, first }: Put): Command {
  return new Command("portolan.once", [number, first, "AGAIN", command.name, ...argsOf(command)]);
}

/** Whether a request overwrites all of its keys, without condition, expiry or anything else. */
export function isPut(command: Pick<Command, "name" | "args" | "inTransaction">): boolean {
  const [name, args] = [command.name.toLowerCase(), argsOf(command)];
  if (command.inTransaction || !(name === "set" ? args.length === 2 : name === "mset" && args.length % 2 === 0)) {
    return false;
  }
  const bytes = args.reduce<number>((sum, key, at) => (at % 2 === 0 ? sum + Buffer.byteLength(key) : sum), 0);
  return bytes > 0 && bytes <= KEYS_BYTES_MAX;
}

/** Strings and buffers, as a command has them once it is made. */
function argsOf({ args }: Pick<Command, "args">): (string | Buffer)[] {
  return args as (string | Buffer)[];
}
