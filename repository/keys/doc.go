// Package keys keeps the API keys of admins, and remembers which secrets instances have used. It owns the table api_keys.
package keys
