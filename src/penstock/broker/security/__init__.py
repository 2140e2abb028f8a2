"""Who is at the other end of a connection: certificates, logins, and this node's own logins to other nodes.

`Authenticator` is the policy that the gate asks (`penstock.broker.gate.Authentication`). A connection's principal comes
from the security protocol of its listener:

    PLAINTEXT         User:ANONYMOUS, at once
    SSL               the certificate's name, after the handshake; User:ANONYMOUS without a certificate
    SASL_PLAINTEXT    nobody until the login has succeeded (SaslHandshake, SaslAuthenticate)
    SASL_SSL          the same, over TLS

Until then the connection may only ask for versions and log in, and its frames are limited to
`sasl.server.max.receive.size`. The login itself is a small state machine per connection (`exchange`); mechanisms are
pure (`scram`, `plain`, `oauth`), and slow arithmetic runs off the loop.

`certificates` reads key and trust stores, and again when they change. `outgoing` is the other side: how this node
logs in to others.
"""
