// A certified OpenID provider for tests: `node openid_provider.mjs LIBRARY SETTINGS`. It writes its address. Then each
// line of its input changes people, and is answered with a line.
//
// People log in with their name and any password. It demands PKCE, the client's secret and the redirect URI.

import { createServer } from "node:http";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [library, text] = process.argv.slice(2);
const { Provider } = await import(pathToFileURL(library).href);
const settings = JSON.parse(text);

const server = createServer();
server.listen(0, "127.0.0.1", () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, {
    clients: [{ client_id: "forebay", redirect_uris: [settings.redirect_uri], grant_types: ["authorization_code"], ...settings.client }],
    claims: { openid: ["sub"], email: ["email", "email_verified"], groups: ["groups"] },
    scopes: ["openid", "email", "groups"],
    conformIdTokenClaims: settings.by_userinfo,
    findAccount: (_, id) => settings.people[id] && { accountId: id, claims: () => ({ sub: id, ...settings.people[id] }) },
    loadExistingGrant: async ({ oidc }) => {
      const grant = new provider.Grant({ clientId: oidc.client.clientId, accountId: oidc.session.accountId });
      grant.addOIDCScope("openid email groups");
      await grant.save();
      return grant;
    },
    // Only what the client does: so a client of one kind is not told of another.
    clientAuthMethods: [settings.client.token_endpoint_auth_method ?? "client_secret_basic"],
    pkce: { required: () => true },
    cookies: { keys: ["of a test"] },
  });
  server.on("request", provider.callback());
  console.log(issuer);
});
const changes = createInterface({ input: process.stdin });
changes.on("line", (people) => console.log(Object.assign(settings.people, JSON.parse(people)) && "done"));
changes.on("close", () => process.exit());
