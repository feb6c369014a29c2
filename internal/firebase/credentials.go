package firebase

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/auth/credentials"
	"cloud.google.com/go/auth/httptransport"
)

const googleUsers = "https://identitytoolkit.googleapis.com"

// lookupURL returns the address for looking up users.
func lookupURL(o Options) string {
	base := cmp.Or(o.UsersURL, googleUsers)
	if o.Emulator != "" {
		base = "http://" + o.Emulator + "/identitytoolkit.googleapis.com"
	}
	return base + "/v1/projects/" + url.PathEscape(o.Project) + "/accounts:lookup"
}

// lookupClient returns a client with credentials, nil without any.
func lookupClient(o Options, g *google) (*http.Client, error) {
	client := g.client(lookupTimeout)
	if o.Emulator != "" {
		client.Transport = emulatorAdmin{g.conns}
		return client, nil
	}
	if o.CredentialsFile == "" && !o.Detect {
		return nil, nil
	}
	found, err := findCredentials(o.CredentialsFile, &credentials.DetectOptions{
		Scopes: []string{"https://www.googleapis.com/auth/identitytoolkit", "https://www.googleapis.com/auth/cloud-platform"},
		Client: g.client(lookupTimeout), DisableAsyncRefresh: true,
	})
	if err != nil {
		return nil, fmt.Errorf("the credentials of Firebase Auth: %w", err)
	}
	authorized, err := httptransport.NewClient(&httptransport.Options{
		Credentials: found, DisableTelemetry: true, BaseRoundTripper: g.conns,
	})
	if err != nil {
		return nil, fmt.Errorf("the credentials of Firebase Auth: %w", err)
	}
	client.Transport = authorized.Transport
	return client, nil
}

// findCredentials reads the file, or finds the platform's own for "". It does not check that they are valid.
func findCredentials(file string, o *credentials.DetectOptions) (*auth.Credentials, error) {
	if file == "" {
		return credentials.DetectDefault(o)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var kind struct {
		Type credentials.CredType `json:"type"`
	}
	if err := json.Unmarshal(raw, &kind); err != nil {
		return nil, fmt.Errorf("%s is not the JSON of a key file: %w", file, err)
	}
	return credentials.NewCredentialsFromJSON(kind.Type, raw, o)
}

// emulatorAdmin sends the emulator's administrator token.
type emulatorAdmin struct{ http.RoundTripper }

func (o emulatorAdmin) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("Authorization", "Bearer owner")
	return o.RoundTripper.RoundTrip(req)
}
