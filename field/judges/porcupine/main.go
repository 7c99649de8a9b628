// A second opinion on linearizability: Portolan's histories, judged by Porcupine.
//
// It is given files in the format of docs/histories.md and prints a line for each, in their order:
// "linearizable", "not linearizable", or "unknown" when ten seconds were not enough.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"log"
	"math"
	"os"
	"strconv"
	"time"

	"github.com/anishathalye/porcupine"
)

const timeout = 10 * time.Second

// A line of a history; lines of other types have none of this but their type.
type line struct {
	Type   string          `json:"type"`
	Key    string          `json:"key"`
	Call   int64           `json:"call_us"`
	Return *int64          `json:"return_us"`
	Do     json.RawMessage `json:"do"`
	Got    json.RawMessage `json:"got"`
	Stale  bool            `json:"stale"`
}

// What is asked for or answered: a word, or a word with an object.
func variant(raw json.RawMessage, into any) (string, error) {
	var word string
	if json.Unmarshal(raw, &word) == nil {
		return word, nil
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(raw, &object); err != nil {
		return "", err
	}
	for word, fields := range object {
		return word, json.Unmarshal(fields, into)
	}
	return "", fmt.Errorf("an empty object")
}

// A copy of a key: what it holds, if anything.
type state struct {
	there bool
	value string
}

func holding(value *string) state {
	if value == nil {
		return state{}
	}
	return state{true, *value}
}

type input struct {
	key, do  string
	value    string
	expected *string
	delta    int64
}

type output struct {
	got    string
	value  *string
	number int64
}

// The number that a copy holds, if it is one.
func (s state) number() (int64, bool) {
	if !s.there {
		return 0, true
	}
	n, err := strconv.ParseInt(s.value, 10, 64)
	return n, err == nil && strconv.FormatInt(n, 10) == s.value
}

func step(s state, in input, out output) (bool, state) {
	unknown := out.got == "unknown"
	switch in.do {
	case "get":
		return unknown || s == holding(out.value), s
	case "put":
		return true, state{true, in.value}
	case "delete":
		return true, state{}
	case "compare_and_set":
		same := s == holding(in.expected)
		after := s
		if same {
			after = state{true, in.value}
		}
		return unknown || same == (out.got == "written"), after
	case "add":
		n, ok := s.number()
		sum := n + in.delta
		if !ok || (in.delta > 0) != (sum > n) && in.delta != 0 {
			return unknown, s
		}
		return unknown || sum == out.number, state{true, strconv.FormatInt(sum, 10)}
	}
	return false, s
}

var model = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		var keys []string
		parts := map[string][]porcupine.Operation{}
		for _, o := range history {
			key := o.Input.(input).key
			if parts[key] == nil {
				keys = append(keys, key)
			}
			parts[key] = append(parts[key], o)
		}
		var all [][]porcupine.Operation
		for _, key := range keys {
			all = append(all, parts[key])
		}
		return all
	},
	Init: func() any { return state{} },
	Step: func(s, in, out any) (bool, any) {
		return step(s.(state), in.(input), out.(output))
	},
}

func operation(text []byte) (*porcupine.Operation, error) {
	var l line
	if err := json.Unmarshal(text, &l); err != nil || l.Type != "op" {
		return nil, err
	}
	var asked struct {
		Value    string
		Expected *string
		Delta    int64
	}
	do, err := variant(l.Do, &asked)
	if err != nil {
		return nil, err
	}
	// The value of an answer is a text or a number.
	var answered struct{ Value json.RawMessage }
	got, err := variant(l.Got, &answered)
	if err != nil {
		return nil, err
	}
	if got == "failed" || l.Stale && do == "get" {
		return nil, nil
	}
	out := output{got: got}
	switch got {
	case "value":
		err = json.Unmarshal(answered.Value, &out.value)
	case "number":
		err = json.Unmarshal(answered.Value, &out.number)
	}
	// What never returned may happen at the very end, where no operation sees whether it did.
	end := int64(math.MaxInt64)
	if l.Return == nil {
		out.got = "unknown"
	} else if out.got != "unknown" {
		end = *l.Return
	}
	in := input{l.Key, do, asked.Value, asked.Expected, asked.Delta}
	return &porcupine.Operation{Input: in, Output: out, Call: l.Call, Return: end}, err
}

func read(path string) ([]porcupine.Operation, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var history []porcupine.Operation
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 16<<20)
	for number := 1; lines.Scan(); number++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		o, err := operation(lines.Bytes())
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		if o != nil {
			history = append(history, *o)
		}
	}
	return history, lines.Err()
}

func main() {
	log.SetFlags(0)
	for _, path := range os.Args[1:] {
		history, err := read(path)
		if err != nil {
			log.Fatalf("%s: %v", path, err)
		}
		switch porcupine.CheckOperationsTimeout(model, history, timeout) {
		case porcupine.Ok:
			fmt.Println("linearizable")
		case porcupine.Illegal:
			fmt.Println("not linearizable")
		default:
			fmt.Println("unknown")
		}
	}
}
