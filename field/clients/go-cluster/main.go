// Counters and values in all slots, through an unmodified go-redis ClusterClient, while slots move.
//
// The environment contains what cluster.py describes. Nothing may go wrong but what the client repairs by
// itself, and at the end every key holds what was written last and every counter what was added.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

const keys = 300

var (
	ctx    = context.Background()
	prefix = os.Getenv("PORTOLAN_PREFIX")
)

func main() {
	options := &redis.ClusterOptions{
		Addrs:       []string{os.Getenv("PORTOLAN_REDIS")},
		Protocol:    3,
		ReadTimeout: 20 * time.Second,
	}
	if os.Getenv("PORTOLAN_RESP") == "2" {
		options.Protocol = 2
	}
	cluster := redis.NewClusterClient(options)
	defer cluster.Close()
	rounds := 0
	for rounds == 0 || !isThere(os.Getenv("PORTOLAN_STOP")) {
		rounds++
		for key := range keys {
			name := fmt.Sprintf("%s%d", prefix, key)
			must(cluster.Set(ctx, name, rounds, 0).Err())
			check(name, cluster.Get(ctx, name), rounds)
		}
		pipeline := cluster.Pipeline()
		for key := range keys {
			pipeline.Incr(ctx, fmt.Sprintf("%sn%d", prefix, key))
		}
		answers, err := pipeline.Exec(ctx)
		must(err)
		for _, answer := range answers {
			if count := answer.(*redis.IntCmd).Val(); count != int64(rounds) {
				log.Fatalf("%v in round %d", answer, rounds)
			}
		}
		one := fmt.Sprintf("%s{t}", prefix)
		_, err = cluster.TxPipelined(ctx, func(tx redis.Pipeliner) error {
			tx.Incr(ctx, one+"a")
			tx.Incr(ctx, one+"b")
			return nil
		})
		must(err)
		if rounds == 1 {
			must(os.WriteFile(os.Getenv("PORTOLAN_STARTED"), nil, 0o644))
		}
	}
	for key := range keys {
		for _, name := range []string{fmt.Sprintf("%s%d", prefix, key), fmt.Sprintf("%sn%d", prefix, key)} {
			check(name, cluster.Get(ctx, name), rounds)
		}
	}
	for _, name := range []string{prefix + "{t}a", prefix + "{t}b"} {
		check(name, cluster.Get(ctx, name), rounds)
	}
	masters := make(chan string, 100)
	must(cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		masters <- node.Options().Addr
		return node.Ping(ctx).Err()
	}))
	fmt.Printf("go-redis: %d rounds of %d keys, %d masters\n", rounds, keys, len(masters))
	if strconv.Itoa(len(masters)) != os.Getenv("PORTOLAN_MASTERS") {
		log.Fatal("that is another number of masters")
	}
}

func isThere(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func check(name string, answer *redis.StringCmd, rounds int) {
	if seen, err := answer.Result(); err != nil || seen != strconv.Itoa(rounds) {
		log.Fatalf("%s: %q, %v instead of %d", name, seen, err, rounds)
	}
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
