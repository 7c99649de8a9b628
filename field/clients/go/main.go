// Every command of Portolan's Redis front, through an unmodified go-redis.
//
// Where the server is and how to come in is in the environment: PORTOLAN_REDIS (host:port),
// PORTOLAN_RESP (2 or 3), and, where they apply, PORTOLAN_CA, PORTOLAN_USER, PORTOLAN_PASSWORD.
// The database must be empty, and is emptied at the end.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log"
	"os"
	"reflect"
	"sort"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

var ctx, cancel = context.WithTimeout(context.Background(), 2*time.Minute)

func options() *redis.Options {
	o := &redis.Options{
		Addr:        os.Getenv("PORTOLAN_REDIS"),
		Username:    os.Getenv("PORTOLAN_USER"),
		Password:    os.Getenv("PORTOLAN_PASSWORD"),
		Protocol:    3,
		ReadTimeout: 20 * time.Second,
	}
	if os.Getenv("PORTOLAN_RESP") == "2" {
		o.Protocol = 2
	}
	if ca := os.Getenv("PORTOLAN_CA"); ca != "" {
		pem, err := os.ReadFile(ca)
		must(err)
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(pem)
		o.TLSConfig = &tls.Config{RootCAs: pool, ServerName: "localhost"}
	}
	return o
}

func must(err error) {
	if err != nil {
		log.Output(2, err.Error())
		os.Exit(1)
	}
}

func expect[T any](wanted T) func(T, error) {
	return func(seen T, err error) {
		if err != nil || !reflect.DeepEqual(seen, wanted) {
			log.Output(2, fmt.Sprintf("%v (%v) instead of %v", seen, err, wanted))
			os.Exit(1)
		}
	}
}

func refused(text string, err error) {
	if err == nil || !strings.Contains(err.Error(), text) {
		log.Output(2, fmt.Sprintf("%v instead of an error with %q", err, text))
		os.Exit(1)
	}
}

func connection(r *redis.Client) {
	expect("PONG")(r.Ping(ctx).Result())
	expect[any]("hello")(r.Echo(ctx, "hello").Result())
	conn := r.Conn()
	defer conn.Close()
	expect(true)(conn.ClientSetName(ctx, "field").Result())
	expect("field")(conn.ClientGetName(ctx).Result())
	commands, err := r.Command(ctx).Result()
	must(err)
	expect(int8(1))(commands["get"].FirstKeyPos, nil)
	_, err = r.Info(ctx).Result()
	must(err)
	refused("unknown command", r.Do(ctx, "NOSUCH", "a").Err())
	refused("wrong number of arguments", r.Do(ctx, "GET").Err())
}

func stringValues(r *redis.Client) {
	expect("OK")(r.Set(ctx, "s", "one", 0).Result())
	expect("one")(r.Get(ctx, "s").Result())
	expect(true)(errors.Is(r.Get(ctx, "absent").Err(), redis.Nil), nil)
	expect(false)(r.SetNX(ctx, "s", "two", 0).Result())
	expect(true)(r.SetXX(ctx, "s", "two", 0).Result())
	expect("two")(r.GetSet(ctx, "s", "three").Result())
	expect(int64(6))(r.Append(ctx, "s", "!").Result())
	expect("three!")(r.GetDel(ctx, "s").Result())
	expect("OK")(r.MSet(ctx, "m1", "a", "m2", "b").Result())
	expect([]any{"a", nil, "b"})(r.MGet(ctx, "m1", "absent", "m2").Result())
	expect(int64(2))(r.Exists(ctx, "m1", "m2", "absent").Result())
	expect("string")(r.Type(ctx, "m1").Result())
	expect(int64(1))(r.Del(ctx, "m1").Result())
	expect(int64(1))(r.Unlink(ctx, "m2").Result())
	expect(int64(1))(r.Incr(ctx, "n").Result())
	expect(int64(42))(r.IncrBy(ctx, "n", 41).Result())
	expect(int64(41))(r.Decr(ctx, "n").Result())
	expect(int64(1))(r.Del(ctx, "n").Result())
}

func expiry(r *redis.Client) {
	must(r.Set(ctx, "e", "x", 100*time.Second).Err())
	ttl, err := r.TTL(ctx, "e").Result()
	expect(true)(ttl > 90*time.Second, err)
	expect(true)(r.Persist(ctx, "e").Result())
	expect(true)(r.Expire(ctx, "e", 100*time.Second).Result())
	expect(true)(r.PExpire(ctx, "e", 50*time.Millisecond).Result())
	for end := time.Now().Add(20 * time.Second); r.Exists(ctx, "e").Val() != 0; time.Sleep(10 * time.Millisecond) {
		expect(true)(time.Now().Before(end), nil)
	}
}

func hashes(r *redis.Client) {
	expect(int64(2))(r.HSet(ctx, "h", "a", "1", "b", "2").Result())
	expect("1")(r.HGet(ctx, "h", "a").Result())
	expect([]any{"1", nil})(r.HMGet(ctx, "h", "a", "absent").Result())
	expect(map[string]string{"a": "1", "b": "2"})(r.HGetAll(ctx, "h").Result())
	expect(true)(r.HExists(ctx, "h", "a").Result())
	expect(int64(2))(r.HLen(ctx, "h").Result())
	expect(false)(r.HSetNX(ctx, "h", "a", "4").Result())
	expect(int64(10))(r.HIncrBy(ctx, "h", "a", 9).Result())
	refused("WRONGTYPE", r.Get(ctx, "h").Err())
	expect(int64(2))(r.HDel(ctx, "h", "a", "b").Result())
}

func scans(r *redis.Client) {
	for i := range 250 {
		must(r.Set(ctx, fmt.Sprintf("scan:%d", i), i, 0).Err())
	}
	must(r.HSet(ctx, "scan:hash", "a", 1).Err())
	count := func(iterator *redis.ScanIterator) int {
		keys := map[string]bool{}
		for iterator.Next(ctx) {
			keys[iterator.Val()] = true
		}
		must(iterator.Err())
		return len(keys)
	}
	expect(int64(251))(r.DBSize(ctx).Result())
	expect(251)(count(r.Scan(ctx, 0, "", 0).Iterator()), nil)
	expect(10)(count(r.Scan(ctx, 0, "scan:1?", 7).Iterator()), nil)
	expect(1)(count(r.ScanType(ctx, 0, "", 0, "hash").Iterator()), nil)
	expect("OK")(r.FlushDB(ctx).Result())
	expect("OK")(r.FlushAll(ctx).Result())
	expect(int64(0))(r.DBSize(ctx).Result())
}

func transactions(r *redis.Client) {
	answers, err := r.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.Set(ctx, "t", 1, 0)
		p.Incr(ctx, "t")
		return nil
	})
	must(err)
	expect(int64(2))(answers[1].(*redis.IntCmd).Result())
	err = r.Watch(ctx, func(tx *redis.Tx) error {
		must(r.Set(ctx, "t", "other", 0).Err())
		_, err := tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.Set(ctx, "t", "mine", 0)
			return nil
		})
		return err
	}, "t")
	expect(true)(errors.Is(err, redis.TxFailedErr), nil)
	expect("other")(r.Get(ctx, "t").Result())
	must(r.FlushAll(ctx).Err())
}

func notifications(r *redis.Client) {
	listener := r.PSubscribe(ctx, "__keyspace@0__:watched:*")
	defer listener.Close()
	_, err := listener.Receive(ctx)
	must(err)
	must(listener.Subscribe(ctx, "__keyevent@0__:del"))
	_, err = listener.Receive(ctx)
	must(err)
	must(r.Set(ctx, "watched:a", 1, 0).Err())
	must(r.Set(ctx, "unwatched", 1, 0).Err())
	must(r.Del(ctx, "watched:a").Err())
	var heard []string
	for len(heard) < 3 {
		message, err := listener.ReceiveMessage(ctx)
		must(err)
		heard = append(heard, message.Channel+" "+message.Payload)
	}
	sort.Strings(heard)
	expect([]string{
		"__keyevent@0__:del watched:a",
		"__keyspace@0__:watched:a del",
		"__keyspace@0__:watched:a set",
	})(heard, nil)
	must(r.FlushAll(ctx).Err())
}

func credentials(*redis.Client) {
	if os.Getenv("PORTOLAN_USER") == "" {
		return
	}
	o := options()
	o.Password = "wrong"
	stranger := redis.NewClient(o)
	defer stranger.Close()
	refused("WRONGPASS", stranger.Ping(ctx).Err())
}

func main() {
	defer cancel()
	log.SetFlags(log.Lshortfile)
	r := redis.NewClient(options())
	defer r.Close()
	must(r.FlushAll(ctx).Err())
	for _, part := range []struct {
		name string
		run  func(*redis.Client)
	}{
		{"connection", connection}, {"strings", stringValues}, {"expiry", expiry}, {"hashes", hashes},
		{"scans", scans}, {"transactions", transactions}, {"notifications", notifications},
		{"credentials", credentials},
	} {
		part.run(r)
		fmt.Printf("go-redis RESP%d: %s\n", options().Protocol, part.name)
	}
}
