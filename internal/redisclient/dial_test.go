package redisclient

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
)

func TestMain(m *testing.M) { os.Exit(servertest.Main(m)) }

func TestDialReadsURLs(t *testing.T) {
	for url, want := range map[string]redis.UniversalOptions{
		"redis://h:1":                                                    {Addrs: []string{"h:1"}},
		"redis://h":                                                      {Addrs: []string{"h:6379"}},
		"redis://u:p@h:1/3":                                              {Addrs: []string{"h:1"}, Username: "u", Password: "p", DB: 3},
		"redis+cluster://a:1,b:2,c:3":                                    {Addrs: []string{"a:1", "b:2", "c:3"}, IsClusterMode: true},
		"redis+cluster://u:p%40q@a:1,b:2":                                {Addrs: []string{"a:1", "b:2"}, Username: "u", Password: "p@q", IsClusterMode: true},
		"redis+sentinel://a:1,b:2,c:3/mymaster":                          {Addrs: []string{"a:1", "b:2", "c:3"}, MasterName: "mymaster"},
		"redis+sentinel://u:p@a:1,b:2/mymaster/2":                        {Addrs: []string{"a:1", "b:2"}, Username: "u", Password: "p", MasterName: "mymaster", DB: 2},
		"redis+cluster://h1,h2:7000,h3":                                  {Addrs: []string{"h1:6379", "h2:7000", "h3:6379"}, IsClusterMode: true},
		"redis+sentinel://h1,h2:7000,h3/master":                          {Addrs: []string{"h1:26379", "h2:7000", "h3:26379"}, MasterName: "master"},
		"redis://:p@h":                                                   {Addrs: []string{"h:6379"}, Password: "p"},
		"redis+sentinel://:p@a,b/m?sentinel_password=q%26%40":            {Addrs: []string{"a:26379", "b:26379"}, Password: "p", SentinelPassword: "q&@", MasterName: "m"},
		"redis+sentinel://a/m/2?sentinel_username=v&sentinel_password=q": {Addrs: []string{"a:26379"}, SentinelUsername: "v", SentinelPassword: "q", MasterName: "m", DB: 2},
		"redis+sentinel://u:p@[::1],h2/master/3":                         {Addrs: []string{"[::1]:26379", "h2:26379"}, Username: "u", Password: "p", MasterName: "master", DB: 3},
	} {
		got, err := parseURL(url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		testkit.Equal(t, url, &want, got)
	}
	for _, url := range []string{"rediss://h:1", "rediss+sentinel://a,b/m", "rediss+cluster://a,b"} {
		if opts, err := parseURL(url); err != nil || opts.TLSConfig == nil {
			t.Errorf("%s: no TLS: %v", url, err)
		}
	}
	for _, url := range []string{
		"", "h:1", "http://h", "redis+sentinel://u:hunter2@a:1", "redis+sentinel://u:hunter2@a:1/m/x", "redis+cluster://",
		"redis://u:hunter2@h:x", "redis://u:hunter2@h:1/x", "redis+cluster://u:hunter2%zz@a",
		"redis+cluster://hunter2/x@a", "redis+cluster://u:hunter2@a/2", "redis+cluster://u:hunter2@a?tls=true", "redis+sentinel://u:hunter2@a/m?tls=true", "redis+sentinel://hunter2#x@a/m", "redis+sentinel://hunter2?x@a/m",
		"redis://h?hunter2=1", "redis://h:1/0?read_timeout=3s", "redis://h?db=1", "rediss://h?skip_verify=true", "redis://u:hunter2@h#1", "redis://hunter2@h",
		"redis://h/1/2", "redis://h/-1", "redis://a,b", "redis+cluster://hunter2@a", "redis+cluster://a?sentinel_password=hunter2", "redis+tls://a", "redis+://a,b",
		"redis+sentinel://a/m?sentinel_password=hunter2&sentinel_password=hunter2", "redis+sentinel://a/m?sentinel_username=hunter2",
		"redis+sentinel://a/m?password=hunter2", "redis+sentinel://a/m?sentinel_password=hunter2%zz", "redis+sentinel://a/m?sentinel_password=hunter2#x",
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
			if text, whole := strings.CutPrefix(err.Error(), errURL.Error()); !whole || strings.ContainsAny(text, "@=%") {
				t.Errorf("%q: the error may contain a part of the URL: %v", rawURL, err)
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
