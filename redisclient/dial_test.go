package redisclient

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"firsttap/servertest"
	"firsttap/testkit"
)

func TestMain(m *testing.M) { os.Exit(servertest.Main(m)) }

func TestDialReadsURLs(t *testing.T) {
	for url, want := range map[string]redis.UniversalOptions{
		"redis://h:1":                             {Addrs: []string{"h:1"}},
		"redis://h":                               {Addrs: []string{"h:6379"}},
		"redis://u:p@h:1/3":                       {Addrs: []string{"h:1"}, Username: "u", Password: "p", DB: 3},
		"redis+cluster://a:1,b:2,c:3":             {Addrs: []string{"a:1", "b:2", "c:3"}, IsClusterMode: true},
		"redis+cluster://u:p%40q@a:1,b:2":         {Addrs: []string{"a:1", "b:2"}, Username: "u", Password: "p@q", IsClusterMode: true},
		"redis+sentinel://a:1,b:2,c:3/mymaster":   {Addrs: []string{"a:1", "b:2", "c:3"}, MasterName: "mymaster"},
		"redis+sentinel://u:p@a:1,b:2/mymaster/2": {Addrs: []string{"a:1", "b:2"}, Username: "u", Password: "p", MasterName: "mymaster", DB: 2},
		"redis+cluster://h1,h2:7000,h3":           {Addrs: []string{"h1:6379", "h2:7000", "h3:6379"}, IsClusterMode: true},
		"redis+sentinel://h1,h2:7000,h3/master":   {Addrs: []string{"h1:26379", "h2:7000", "h3:26379"}, MasterName: "master"},
		"redis+sentinel://u:p@[::1],h2/master/3":  {Addrs: []string{"[::1]:26379", "h2:26379"}, Username: "u", Password: "p", MasterName: "master", DB: 3},
	} {
		got, err := parseURL(url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		testkit.Equal(t, url, &want, got)
	}
	if opts, err := parseURL("rediss://h:1"); err != nil || opts.TLSConfig == nil {
		t.Errorf("no TLS: %v", err)
	}
	for _, url := range []string{
		"", "h:1", "http://h", "redis+sentinel://u:hunter2@a:1", "redis+sentinel://u:hunter2@a:1/m/x", "redis+cluster://",
		"redis://u:hunter2@h:x", "redis://u:hunter2@h:1/x", "redis+cluster://u:hunter2%zz@a",
		"redis+cluster://hunter2/x@a", "redis+cluster://u:hunter2@a/2", "redis+cluster://u:hunter2@a?tls=true", "redis+sentinel://u:hunter2@a/m?tls=true", "redis+sentinel://hunter2#x@a/m", "redis+sentinel://hunter2?x@a/m",
	} {
		if _, err := Dial(url, time.Second); err == nil {
			t.Errorf("%q is accepted", url)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error contains the password: %v", err)
		}
	}
}

func FuzzDial(f *testing.F) {
	for _, s := range []string{
		"redis://h:1", "rediss://u:p@h:1/3", "redis+cluster://a:1,b:2", "redis+sentinel://u:p@a:1,b:2/m/2", "redis+sentinel:///@/",
		"redis+cluster://,", "redis+sentinel://u:x/y@h/m", "redis://:secret@[::1]:6379?db=1", "://", "redis+cluster://%zz@h",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, rawURL string) {
		opts, err := parseURL(rawURL)
		if err != nil {
			if text := err.Error(); text != errURL.Error() && text != errURL.Error()+": the name of the master is missing" {
				t.Errorf("%q: the error contains a part of the URL: %v", rawURL, err)
			}
			return
		}
		if len(opts.Addrs) == 0 {
			t.Errorf("%q: no address", rawURL)
		}
		for _, addr := range opts.Addrs {
			if strings.Trim(addr, " ") == "" || strings.ContainsAny(addr, "@/") {
				t.Errorf("%q: the address %q", rawURL, addr)
			}
		}
		if strings.ContainsAny(opts.MasterName, "@") {
			t.Errorf("%q: the master %q", rawURL, opts.MasterName)
		}
		client, err := Dial(rawURL, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		client.Close()
	})
}
